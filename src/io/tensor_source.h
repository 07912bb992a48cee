// Whatever holds tensors, opened by one function: a .npy, .npz, .safetensors or torch file, a sharded checkpoint, or a
// folder of such files. Listing reads headers only; a tensor is loaded when it is asked for.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/tensor_info.h"

namespace lockstep {

class TensorSource {
 public:
  // Loads one tensor of a file by the name it has in that file.
  using Loader = std::function<Tensor(std::string_view name)>;

  explicit TensorSource(fs::path path) : path_(std::move(path)) {}

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;
  Tensor tensor(std::string_view name) const;  // Error{kNotFound} names the nearest known names
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const fs::path& path() const { return path_; }

  // The tensors of one file, `prefix` before their names; `alone`, if any, names one that has none in its file.
  void add(std::span<const TensorInfo> tensors, const std::string& prefix, const std::string& alone, Loader loader);
  void add_metadata(const std::map<std::string, std::string>& metadata);
  void finish();  // after the last add: two tensors of one name are refused

 private:
  struct Part {
    size_t begin;                // its first tensor in tensors_
    size_t prefix_size;          // of the names there
    std::optional<size_t> bare;  // the one that has no name in its file
    Loader loader;
  };
  std::optional<size_t> position(std::string_view name) const;

  fs::path path_;
  std::vector<TensorInfo> tensors_;
  std::vector<Part> parts_;
  // Listing needs no look-up, and ten thousand names take as long to hash as to read: made when first asked for.
  mutable std::once_flag indexed_;
  mutable std::unordered_map<std::string_view, size_t> index_;  // the keys are the names in tensors_
  std::map<std::string, std::string> metadata_;
};

// Names: as in the file; a lone .npy or bare torch tensor is named by its file without extension. A folder of
// safetensors files is a checkpoint, and one with such folders inside a model: `transformer.` before the names of
// transformer/. In any other folder names are paths without extension, `sub/latents`, and `sub/file/inner` where a file
// holds several.
// `skipped`: files of a folder that cannot be read are put there, as long as another can; without it they are an error.
struct SkippedFile {
  fs::path file;
  std::string why;
};
std::unique_ptr<TensorSource> open_tensors(const fs::path& path, std::vector<SkippedFile>* skipped = nullptr);

bool has_tensor_extension(const fs::path& path);  // .npy .npz .safetensors .pt .pth .bin

}  // namespace lockstep
