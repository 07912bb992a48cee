#include "io/npz.h"

#include "base/error.h"
#include "io/npy.h"
#include "io/zip_writer.h"

namespace lockstep {
namespace {

constexpr std::string_view kEnding = ".npy";
constexpr uint64_t kHeaderRoom = 12 + 10'000;  // the longest .npy header that is read

}  // namespace

std::shared_ptr<const NpzFile> NpzFile::open(const fs::path& path) {
  const auto file = MappedFile::open(path);
  return parse(file->bytes(), path, file);
}

std::shared_ptr<const NpzFile> NpzFile::parse(std::span<const std::byte> bytes, const fs::path& origin,
                                              std::shared_ptr<const void> owner) {
  std::shared_ptr<NpzFile> file(new NpzFile(ZipArchive(bytes, origin.string(), std::move(owner))));
  for (const ZipEntry& entry : file->archive_.entries()) {
    if (!entry.name.ends_with(kEnding)) continue;
    const OwnedBytes start = file->archive_.read_start(entry, kHeaderRoom);
    const NpyLayout layout = parse_npy_layout(start.bytes, entry.size_bytes, origin.string() + ":" + entry.name);
    file->tensors_.push_back({.name = entry.name.substr(0, entry.name.size() - kEnding.size()),
                              .dtype = layout.dtype,
                              .shape = layout.shape,
                              .file = origin,
                              .offset_bytes = entry.data_offset + (entry.deflated ? 0 : layout.data_at),
                              .size_bytes = entry.size_bytes - layout.data_at,
                              .complex = layout.complex});
  }
  return file;
}

Tensor NpzFile::tensor(std::string_view name, std::optional<DType> void_dtype) const {
  const ZipEntry* entry = archive_.find(std::string(name) + std::string(kEnding));
  if (!entry) fail(Code::kNotFound, "npz", archive_.origin() + " has no array \"" + std::string(name) + "\"");
  OwnedBytes content = archive_.read(*entry, true);
  return parse_npy(content.bytes, archive_.origin() + ":" + entry->name, std::move(content.owner), void_dtype);
}

void write_npz(const fs::path& path, const NamedTensors& tensors, const ComplexNames& complex) {
  ZipWriter writer(path);
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) fail(Code::kBadInput, "npz", "\"" + name + "\" is not a tensor");
    const Tensor packed = tensor.contiguous();
    const std::string header = npy_header(packed.dtype(), packed.shape(), 64, complex.contains(name));
    writer.add(name + std::string(kEnding), {std::as_bytes(std::span(header)), packed.contiguous_bytes()}, 64);
  }
  writer.commit();
}

}  // namespace lockstep
