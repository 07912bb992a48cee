// A run, read: its manifest and records at once, its tensors when asked for.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "capture/record.h"

namespace lockstep {

class Run {
 public:
  // `spec`: an id, a unique prefix, "latest", "latest:NAME" or a path: a run folder, a plain folder of .npy, .pt or
  // .safetensors files, or one such file. A run whose writer was killed is first completed from its spool.
  static Run open(std::string_view spec, const fs::path& home);
  static Run open_path(const fs::path& path);

  const fs::path& path() const { return path_; }
  const Json& manifest() const { return manifest_; }  // a made-up one for a plain folder
  std::string id() const { return text("id"); }
  std::string name() const { return text("name"); }
  std::string status() const { return text("status"); }  // running, finished, failed or killed

  // In the order of recording. Of a program of several processes: those of each rank, with a tag `rank`, rank by rank.
  const std::vector<Record>& records() const { return records_; }
  int64_t skipped_lines() const { return skipped_lines_; }  // torn or malformed

  // The record of this name, step, hit and tags. Outputs and checkpoints are preferred to inputs and variables unless
  // `role` names one.
  const Record* find(const TensorKey& key, std::optional<Role> role = std::nullopt) const;

  bool has_values(const Record& record) const { return !record.file.empty() && record.dtype.has_value(); }
  Tensor tensor(const Record& record) const;  // Error{kNotFound} when only statistics were kept
  bool checksum_matches(const Record& record) const;

 private:
  friend Run open_plain_folder(const fs::path& path);
  static Run open_folder(const fs::path& path);
  std::string text(const char* field) const;
  void read_records();
  void add_ranks();
  void index_records();

  fs::path path_;
  Json manifest_ = Json::object();
  std::vector<Record> records_;
  std::vector<std::function<Tensor()>> loaders_;  // plain folders: one a record
  std::unordered_map<std::string, std::vector<size_t>> by_name_;
  int64_t skipped_lines_ = 0;
};

Run open_plain_folder(const fs::path& path);

}  // namespace lockstep
