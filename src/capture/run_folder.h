// The files of one run: run.json, records.jsonl and tensors/, written so that a reader at any moment sees whole
// records.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "base/json.h"
#include "capture/record.h"

namespace lockstep {

inline constexpr uint64_t kMaxManifestBytes = 16 << 20;  // of a run.json

class RunFolder {
 public:
  explicit RunFolder(fs::path path) : path_(std::move(path)) {}
  ~RunFolder() { close_log(); }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const fs::path& path() const { return path_; }

  // Opens records.jsonl for appending. A torn last line (of a writer that was killed) is cut off.
  void open_log();
  void close_log() noexcept;
  int64_t last_seq() const { return last_seq_; }  // -1: no record yet

  // One write() a line. A line that does not fit on the disk is taken back, so that the file stays whole.
  void append(const Record& record);

  // tensors/STEM.npy; returns the name relative to the run. An existing file (a file system that ignores case) is never
  // overwritten: the name gets a suffix.
  std::string write_tensor(const Record& record, std::span<const std::byte> packed);
  std::string write_tensor(const Record& record, const Tensor& tensor);  // any strides, block by block
  // The same past the page cache, where the file system can. `values` begin a page; the page before them is overwritten
  // with the file's header, and their last page is read to its end.
  std::string write_aligned_tensor(const Record& record, std::span<std::byte> values);
  // Another name for a file that holds the very same tensor.
  std::string link_tensor(const Record& record, const std::string& file);
  std::optional<Record> find(int64_t seq) const;  // reads records.jsonl from the start

  Json manifest() const;
  void write_manifest(const Json& manifest) const;

 private:
  struct NewTensor;
  NewTensor create_tensor(const Record& record, int more_flags = 0) const;

  fs::path path_;
  int log_ = -1;
  uint64_t log_bytes_ = 0;
  int64_t last_seq_ = -1;
};

void merge_into(Json& target, const Json& patch);  // objects are merged, everything else replaced

// Writes a spooled record's values and line. `record.checksum` was taken when the values were captured: false when the
// values no longer match it. `aligned`: the same values where they may be written past the page cache.
bool finish_record(RunFolder& folder, Record& record, std::span<const std::byte> packed,
                   std::optional<std::span<std::byte>> aligned = std::nullopt);
// The same for values that were seen before in this run: `first` is their record, complete.
void finish_repeated_record(RunFolder& folder, Record& record, const Record& first);

// What its run.json calls a run, or its folder's name where that says nothing of use.
std::string run_id(const Json& manifest, const fs::path& run);

// Brings in what a killed writer left in its spool, and says so in run.json. Nothing when the writer lives.
void recover_run(const fs::path& run);

}  // namespace lockstep
