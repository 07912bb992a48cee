// multipart/form-data, read as it arrives: fields into memory, files into a folder of ours, each within its bound. File
// names that a client tells are never used as paths.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace lockstep {

struct MultipartLimits {
  size_t parts = 64;
  size_t part_head_bytes = 8 << 10;
  size_t field_bytes = 256 << 10;
  uint64_t file_bytes = 50ull << 20;
  size_t files = 17;  // sixteen pictures and a mask
};

struct FormPart {
  std::string name, text;  // text: of a field
  bool is_file = false;
  fs::path file;  // of a file: where it was spooled
  uint64_t file_bytes = 0;
};

// The boundary of a content type; empty: it is no form.
std::string multipart_boundary(std::string_view content_type);

class MultipartParser {
 public:
  // Files are made in `spool` under names of ours; whoever takes the parts removes them.
  MultipartParser(const std::string& boundary, fs::path spool, const MultipartLimits& limits = {});
  ~MultipartParser();
  MultipartParser(const MultipartParser&) = delete;
  MultipartParser& operator=(const MultipartParser&) = delete;

  void feed(std::string_view bytes);  // Error{kBadInput}, or Error{kMemory} where a bound is passed
  std::vector<FormPart> finish();     // Error{kBadInput} where the end is missing
  static std::vector<FormPart> read(const std::string& boundary, const fs::path& spool, std::string_view body);

 private:
  enum class State { kPreamble, kHead, kBody, kAfterBoundary, kEnd };
  bool step();
  size_t found_early(std::string_view mark, const char* refusal) const;
  void begin_part(std::string_view head);
  void take(std::string_view bytes);
  void end_part();

  std::string delimiter_;
  fs::path spool_;
  MultipartLimits limits_;
  State state_ = State::kPreamble;
  std::string buffer_;
  std::vector<FormPart> parts_;
  FormPart part_;
  int file_ = -1;
  size_t files_ = 0;
  bool fresh_ = false;  // nothing of the body was looked at
  bool taken_ = false;
};

}  // namespace lockstep
