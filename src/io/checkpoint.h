// A checkpoint: one safetensors file, a folder with an index and its shards, or a folder with safetensors files alone
// (mflux: 0.safetensors, ...).
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace lockstep {

// What model.safetensors.index.json says: tensor name → shard, a plain file name beside the index.
using CheckpointIndex = std::vector<std::pair<std::string, std::string>>;
CheckpointIndex parse_checkpoint_index(std::string_view text, std::string_view origin);

class Checkpoint {
 public:
  // A .safetensors file, an index (.json), or a folder. Tensors in a shard that its index does not name are listed too.
  static Checkpoint open(const fs::path& file_or_folder);

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;
  Tensor tensor(std::string_view name) const;  // Error{kNotFound} names the nearest known names
  // The tensor's bytes are not needed for now: their memory goes back until they are read again.
  void drop_pages(std::string_view name) const;
  bool holds(const Tensor& tensor) const;  // whether its elements are a file's own bytes, not a copy of them
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const fs::path& path() const { return path_; }

 private:
  void open_index(const fs::path& index_path);
  void open_files(const std::vector<fs::path>& files);
  template <typename Wanted>
  void add_file(const std::shared_ptr<const SafetensorsFile>& file, const Wanted& wanted);

  fs::path path_;
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::vector<TensorInfo> tensors_;
  struct Place {
    size_t tensor, file;  // in tensors_, in files_
  };
  std::unordered_map<std::string_view, Place> index_;  // the keys are the names in files_, which never change
  std::map<std::string, std::string> metadata_;
};

}  // namespace lockstep
