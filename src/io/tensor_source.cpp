#include "io/tensor_source.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/names.h"
#include "io/checkpoint.h"
#include "io/npy.h"
#include "io/npz.h"
#include "io/torch_file.h"

namespace lockstep {
namespace {

constexpr size_t kMaxFolderFiles = 1'000'000;

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

void add_npy(TensorSource& source, const std::shared_ptr<const MappedFile>& file, const std::string& name) {
  const NpyLayout layout = parse_npy_layout(file->bytes(), file->bytes().size(), file->path().string());
  source.add({.name = name,
              .dtype = layout.dtype,
              .shape = layout.shape,
              .file = file->path(),
              .offset_bytes = layout.data_at,
              .size_bytes = file->bytes().size() - layout.data_at},
             [path = file->path()] { return read_npy(path); });
}

void add_safetensors(TensorSource& source, const std::shared_ptr<const SafetensorsFile>& file,
                     const std::string& prefix) {
  for (const TensorInfo& info : file->tensors()) {
    TensorInfo named = info;
    named.name = prefix + info.name;
    source.add(std::move(named), [file, &info] { return file->tensor(info.name); });
  }
  source.add_metadata(file->metadata());
}

// A file with one bare tensor gives it the file's own name.
void add_torch(TensorSource& source, const std::shared_ptr<const TorchFile>& file, const std::string& name,
               const std::string& prefix) {
  for (const TensorInfo& info : file->tensors()) {
    TensorInfo named = info;
    named.name = info.name.empty() ? name : prefix + info.name;
    source.add(std::move(named), [file, &info] { return file->tensor(info.name); });
  }
}

void add_npz(TensorSource& source, const std::shared_ptr<const NpzFile>& file, const std::string& prefix) {
  for (const TensorInfo& info : file->tensors()) {
    TensorInfo named = info;
    named.name = prefix + info.name;
    source.add(std::move(named), [file, &info] { return file->tensor(info.name); });
  }
}

bool is_torch_name(const fs::path& path) {
  return path.extension() == ".pt" || path.extension() == ".pth";
}

bool is_npz(const MappedFile& file) {
  if (!starts_with(file.bytes(), "PK")) return false;
  // By name first: what is called .npz should be judged, and refused, as one. Then by content.
  if (file.path().extension() == ".npz") return true;
  if (is_torch_name(file.path()) || file.path().extension() == ".bin") return false;
  const ZipArchive archive(file.bytes(), file.path().string(), nullptr);
  return std::any_of(archive.entries().begin(), archive.entries().end(),
                     [](const ZipEntry& entry) { return entry.name.ends_with(".npy"); });
}

void add_checkpoint(TensorSource& source, const fs::path& path, const std::string& prefix = "") {
  const auto checkpoint = std::make_shared<const Checkpoint>(Checkpoint::open(path));
  for (const TensorInfo& info : checkpoint->tensors()) {
    TensorInfo named = info;
    named.name = prefix + info.name;
    source.add(std::move(named), [checkpoint, &info] { return checkpoint->tensor(info.name); });
  }
  source.add_metadata(checkpoint->metadata());
}

// `name` is the file's own name; a file with several tensors puts it before theirs when `nested`.
void add_file(TensorSource& source, const fs::path& path, const std::string& name, bool nested) {
  const auto file = MappedFile::open(path);
  const std::string prefix = nested ? name + "/" : "";
  if (starts_with(file->bytes(), "\x93NUMPY"))
    add_npy(source, file, name);
  else if (is_npz(*file))
    add_npz(source, NpzFile::parse(file->bytes(), path, file), prefix);
  else if (TorchFile::looks_like(file->bytes()) || is_torch_name(path))
    add_torch(source, TorchFile::parse(file->bytes(), path, file), name, prefix);
  else
    add_safetensors(source, SafetensorsFile::parse(file->bytes(), path, file), prefix);
}

std::vector<fs::path> tensor_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  // Links to folders are not followed: they could lead anywhere, or round in a circle.
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_directory(ignored) || !has_tensor_extension(at->path())) continue;
    // .bin is anybody's extension; only torch's own count.
    if (at->path().extension() == ".bin" && !TorchFile::looks_like(MappedFile::open(at->path())->bytes())) continue;
    files.push_back(at->path());
    if (files.size() > kMaxFolderFiles) fail(Code::kBadInput, "open", folder.string() + " holds too many files");
  }
  if (error) fail(Code::kIo, "open", folder.string() + ": " + error.message());
  std::sort(files.begin(), files.end());
  return files;
}

void add_folder(TensorSource& source, const fs::path& folder) {
  const std::vector<fs::path> files = tensor_files(folder);
  if (files.empty())
    fail(Code::kNotFound, "open", folder.string() + " holds no tensor files",
         {.expected = ".npy, .npz, .safetensors, .pt, .pth or .bin files"});
  // Models come as safetensors, often with the same weights once more as .bin beside them.
  std::set<fs::path> components;
  for (const fs::path& path : files)
    if (path.extension() == ".safetensors") components.insert(path.parent_path());
  const bool model = !components.empty() && std::all_of(files.begin(), files.end(), [](const fs::path& path) {
    return path.extension() == ".safetensors" || path.extension() == ".bin";
  });
  if (model) {
    for (const fs::path& component : components) {
      std::string prefix = component == folder ? "" : component.lexically_relative(folder).string() + ".";
      std::replace(prefix.begin(), prefix.end(), '/', '.');
      add_checkpoint(source, component, prefix);
    }
    return;
  }
  for (const fs::path& path : files)
    add_file(source, path, path.lexically_relative(folder).replace_extension().string(), true);
}

}  // namespace

void TensorSource::add(TensorInfo info, Loader loader) {
  const auto [at, fresh] = index_.emplace(info.name, tensors_.size());
  if (!fresh)
    fail(Code::kBadInput, "open", path_.string() + " holds two tensors named \"" + info.name + "\"",
         {.got = tensors_[at->second].file.string() + " and " + info.file.string()});
  tensors_.push_back(std::move(info));
  loaders_.push_back(std::move(loader));
}

void TensorSource::add_metadata(const std::map<std::string, std::string>& metadata) {
  metadata_.insert(metadata.begin(), metadata.end());
}

const TensorInfo* TensorSource::find(std::string_view name) const {
  const auto at = index_.find(std::string(name));
  return at == index_.end() ? nullptr : &tensors_[at->second];
}

Tensor TensorSource::tensor(std::string_view name) const {
  const auto at = index_.find(std::string(name));
  if (at != index_.end()) return loaders_[at->second]();
  std::vector<std::string> known;
  for (const TensorInfo& info : tensors_) known.push_back(info.name);
  std::string near;
  for (const std::string& candidate : nearest_names(name, known)) near += (near.empty() ? "" : ", ") + candidate;
  fail(Code::kNotFound, "open", path_.string() + " has no tensor \"" + std::string(name) + "\"", {.hint = near});
}

bool has_tensor_extension(const fs::path& path) {
  const std::string extension = path.extension().string();
  for (const char* known : {".npy", ".npz", ".safetensors", ".pt", ".pth", ".bin"})
    if (extension == known) return true;
  return false;
}

std::unique_ptr<TensorSource> open_tensors(const fs::path& path) {
  auto source = std::make_unique<TensorSource>(path);
  std::error_code error;
  if (fs::is_directory(path, error))
    add_folder(*source, fs::path(path / "").parent_path());  // without a trailing slash, so that parents compare equal
  else if (path.extension() == ".json")
    add_checkpoint(*source, path);
  else
    add_file(*source, path, path.stem().string(), false);
  return source;
}

}  // namespace lockstep
