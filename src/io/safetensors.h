// safetensors: read strictly from a memory map, written in the official library's layout.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/tensor_info.h"

namespace lockstep {

// Dtypes that a file may hold and no arithmetic of ours knows: their values are read as f32, exactly.
enum class StoredAs {
  kE8M0,  // a power of two, the scale of a block: 2^(byte - 127), 255 is NaN
  kF4     // E2M1, two a byte, the first in the low half
};

class SafetensorsFile {
 public:
  static std::shared_ptr<const SafetensorsFile> open(const fs::path& path);
  // The same over bytes in memory, which `owner` keeps alive; `origin` names them in errors.
  static std::shared_ptr<const SafetensorsFile> parse(std::span<const std::byte> bytes, const fs::path& origin,
                                                      std::shared_ptr<const void> owner);

  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in the order of their offsets
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorInfo* find(std::string_view name) const;
  void drop_pages(std::string_view name) const;  // of a mapped file: the tensor's memory, until it is read again
  bool holds(const Tensor& tensor) const;        // whether its elements are the file's own bytes, not a copy of them
  // A view of the map; copied only if the file put it at a misaligned offset, or stores it otherwise (StoredAs).
  Tensor tensor(std::string_view name) const;

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const MappedFile> map_;  // unset for bytes in memory
  std::vector<TensorInfo> tensors_;
  std::map<std::string, StoredAs, std::less<>> unpacked_;  // the few that are not stored as what they are read as
  std::unordered_map<std::string_view, size_t> index_;     // keys are the names in tensors_, which never changes again
  std::map<std::string, std::string> metadata_;
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Sorted as the official library sorts: widest dtype first, then by name; the header is padded to 8 bytes.
void write_safetensors(const fs::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {}, const ComplexNames& complex = {});

}  // namespace lockstep
