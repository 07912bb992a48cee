// torch .pt / .pth / .bin: the zip form and the older plain form, read without executing anything; written as the zip
// form that torch.load(weights_only=True) opens.
#pragma once
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/pickle.h"
#include "io/safetensors.h"
#include "io/zip_archive.h"

namespace lockstep {

class TorchFile {
 public:
  static std::shared_ptr<const TorchFile> open(const fs::path& path);
  static std::shared_ptr<const TorchFile> parse(std::span<const std::byte> bytes, const fs::path& origin,
                                                std::shared_ptr<const void> owner);
  static bool looks_like(std::span<const std::byte> bytes);  // either form, by its first bytes; a zip may also be .npz

  // Named by their path in the saved object, "state_dict.fc.weight"; a file that is one bare tensor names it "".
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // Packed, a view of the map where possible. A tensor expanded beyond its storage stays a strided view.
  Tensor tensor(std::string_view name) const;
  PickleRef root() const { return document_.root; }  // everything else that was saved

 private:
  TorchFile() = default;
  void read_zip(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);
  void read_legacy(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);
  void check_small_records() const;
  void list_tensors();
  OwnedBytes storage_bytes(const PickleStorage& storage) const;

  fs::path path_;
  PickleDocument document_;
  std::unique_ptr<ZipArchive> archive_;  // zip form
  std::string prefix_;                   // of its entries, "archive/"
  std::unordered_map<std::string, OwnedBytes> legacy_storages_;
  std::vector<TensorInfo> tensors_;
  std::vector<const PickleTensor*> pickled_;  // beside tensors_
  std::unordered_map<std::string, size_t> index_;
};

// A flat dictionary of tensors.
void write_torch(const fs::path& path, const NamedTensors& tensors, const ComplexNames& complex = {});

}  // namespace lockstep
