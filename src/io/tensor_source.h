// Whatever holds tensors, opened by one function: a .npy, .npz, .safetensors or torch file, a sharded checkpoint, or a
// folder of such files. Listing reads headers only; a tensor is loaded when it is asked for.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/tensor_info.h"

namespace lockstep {

class TensorSource {
 public:
  using Loader = std::function<Tensor()>;

  explicit TensorSource(fs::path path) : path_(std::move(path)) {}

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;
  Tensor tensor(std::string_view name) const;  // Error{kNotFound} names the nearest known names
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const fs::path& path() const { return path_; }

  void add(TensorInfo info, Loader loader);  // two tensors of one name are refused
  void add_metadata(const std::map<std::string, std::string>& metadata);

 private:
  fs::path path_;
  std::vector<TensorInfo> tensors_;
  std::vector<Loader> loaders_;
  std::unordered_map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

// Names: as in the file; a lone .npy or bare torch tensor is named by its file without extension. A folder of
// safetensors files is a checkpoint, and one with such folders inside a model: `transformer.` before the names of
// transformer/. In any other folder names are paths without extension, `sub/latents`, and `sub/file/inner` where a file
// holds several.
std::unique_ptr<TensorSource> open_tensors(const fs::path& path);

bool has_tensor_extension(const fs::path& path);  // .npy .npz .safetensors .pt .pth .bin

}  // namespace lockstep
