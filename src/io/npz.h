// NumPy .npz: a zip of .npy files, stored or deflated.
#pragma once
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "io/zip_archive.h"

namespace lockstep {

class NpzFile {
 public:
  static std::shared_ptr<const NpzFile> open(const fs::path& path);
  static std::shared_ptr<const NpzFile> parse(std::span<const std::byte> bytes, const fs::path& origin,
                                              std::shared_ptr<const void> owner);

  // Entries named *.npy, without that ending, in the order of the archive; other entries are not arrays and left out.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  Tensor tensor(std::string_view name, std::optional<DType> void_dtype = std::nullopt) const;

 private:
  explicit NpzFile(ZipArchive archive) : archive_(std::move(archive)) {}
  ZipArchive archive_;
  std::vector<TensorInfo> tensors_;
};

void write_npz(const fs::path& path, const NamedTensors& tensors,
               const ComplexNames& complex = {});  // stored, as numpy.savez; atomic

}  // namespace lockstep
