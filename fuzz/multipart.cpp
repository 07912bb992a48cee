// Layer: tensor with http/multipart.cpp
// Fuzzes forms that a client sends: refused, or the same parts however the bytes arrive, and nothing left on disk.
#include "http/multipart.h"

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "base/error.h"
#include "fuzz_input.h"

namespace {

using Parts = std::vector<std::pair<std::string, std::string>>;

std::optional<Parts> parts_of(std::string_view body, size_t piece, const lockstep::fs::path& spool) {
  using namespace lockstep;
  try {
    MultipartParser parser("b", spool, {.parts = 8, .part_head_bytes = 200, .field_bytes = 300, .file_bytes = 300});
    for (size_t at = 0; at < body.size(); at += piece) parser.feed(body.substr(at, piece));
    Parts parts;
    for (const FormPart& part : parser.finish()) {
      parts.emplace_back(part.name, part.is_file ? read_text(part.file, 1000) : part.text);
      if (part.is_file && part.file.parent_path() != spool) std::abort();
      if (part.is_file) ::unlink(part.file.c_str());
    }
    return parts;
  } catch (const Error& error) {
    if (error.code() == Code::kIo) std::abort();
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    static const fs::path spool = fs::temp_directory_path() / ("lockstep-multipart-" + std::to_string(::getpid()));
    const std::string_view body(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    multipart_boundary(body);
    const auto whole = parts_of(body, body.size() + 1, spool);
    for (const size_t piece : {size_t{1}, size_t{7}})
      if (parts_of(body, piece, spool) != whole) std::abort();
    std::error_code error;
    for (auto entry = fs::directory_iterator(spool, error); !error && entry != fs::directory_iterator(); ++entry)
      std::abort();
    fs::remove(spool, error);
  });
}
