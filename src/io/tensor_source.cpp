#include "io/tensor_source.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/file_walk.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/names.h"
#include "io/checkpoint.h"
#include "io/npy.h"
#include "io/npz.h"
#include "io/safetensors.h"
#include "io/torch_file.h"

namespace lockstep {
namespace {

constexpr size_t kMaxFolderFiles = 1'000'000;
constexpr int64_t kMaxFolderEntries = 200'000;  // of any kind

bool has_magic(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

void add_npy(TensorSource& source, const std::shared_ptr<const MappedFile>& file, const std::string& name) {
  const NpyLayout layout = parse_npy_layout(file->bytes(), file->bytes().size(), file->path().string());
  const TensorInfo info{.name = "",
                        .dtype = layout.dtype,
                        .shape = layout.shape,
                        .file = file->path(),
                        .offset_bytes = layout.data_at,
                        .size_bytes = file->bytes().size() - layout.data_at,
                        .complex = layout.complex};
  source.add({&info, 1}, "", name, [path = file->path()](std::string_view) { return read_npy(path); });
}

// `name` is for a file with one bare tensor: that has the file's own name.
template <typename File>
void add_all(TensorSource& source, const std::shared_ptr<const File>& file, const std::string& prefix,
             const std::string& name = "") {
  source.add(file->tensors(), prefix, name, [file](std::string_view inner) { return file->tensor(inner); });
}

void add_safetensors(TensorSource& source, const std::shared_ptr<const SafetensorsFile>& file,
                     const std::string& prefix) {
  add_all(source, file, prefix);
  source.add_metadata(file->metadata());
}

bool is_torch_name(const fs::path& path) {
  return path.extension() == ".pt" || path.extension() == ".pth";
}

// A header's length, then the header, an object.
bool may_be_safetensors(std::span<const std::byte> bytes) {
  constexpr size_t kLengthBytes = 8;
  return bytes.size() > kLengthBytes && bytes[kLengthBytes] == std::byte{'{'};
}

bool is_npz(const MappedFile& file) {
  if (!has_magic(file.bytes(), "PK")) return false;
  // By name first: what is called .npz should be judged, and refused, as one. Then by content.
  if (file.path().extension() == ".npz") return true;
  if (is_torch_name(file.path()) || file.path().extension() == ".bin") return false;
  const ZipArchive archive(file.bytes(), file.path().string(), nullptr);
  return std::any_of(archive.entries().begin(), archive.entries().end(),
                     [](const ZipEntry& entry) { return entry.name.ends_with(".npy"); });
}

void add_checkpoint(TensorSource& source, const fs::path& path, const std::string& prefix = "") {
  const auto checkpoint = std::make_shared<const Checkpoint>(Checkpoint::open(path));
  add_all(source, checkpoint, prefix);
  source.add_metadata(checkpoint->metadata());
}

// `name` is the file's own name; a file with several tensors puts it before theirs when `nested`.
void add_file(TensorSource& source, const fs::path& path, const std::string& name, bool nested) {
  const auto file = MappedFile::open(path);
  const std::string prefix = nested ? name + "/" : "";
  // What is called .npy is judged, and refused, as one.
  if (has_magic(file->bytes(), "\x93NUMPY") || path.extension() == ".npy")
    add_npy(source, file, name);
  else if (is_npz(*file))
    add_all(source, NpzFile::parse(file->bytes(), path, file), prefix);
  else if (TorchFile::looks_like(file->bytes()) || is_torch_name(path))
    add_all(source, TorchFile::parse(file->bytes(), path, file), prefix, name);
  else if (path.extension() == ".safetensors" || may_be_safetensors(file->bytes()))
    add_safetensors(source, SafetensorsFile::parse(file->bytes(), path, file), prefix);
  else
    fail(Code::kBadInput, "open", path.string() + " holds no tensors we know",
         {.expected = "the content of a .npy, .npz, .safetensors, .pt, .pth or .bin file"});
}

std::vector<fs::path> tensor_files(const fs::path& folder) {
  std::vector<fs::path> files;
  // Links to folders are not followed: they could lead anywhere, or round in a circle.
  const auto refuse = [&folder] {
    fail(Code::kBadInput, "open", folder.string() + " holds too much to look for tensors in it",
         {.expected = "at most " + std::to_string(kMaxFolderEntries) + " files, 12 levels of folders",
          .hint = "the folder of the tensors themselves"});
  };
  const bool whole = walk_files(
      folder, {.depth = 12, .entries = kMaxFolderEntries, .secs = 5}, "open", [&](const fs::directory_entry& entry) {
        std::error_code ignored;
        if (entry.is_directory(ignored) || !has_tensor_extension(entry.path())) return;
        // .bin is anybody's extension; only torch's own count.
        if (entry.path().extension() == ".bin" && !TorchFile::looks_like(MappedFile::open(entry.path())->bytes()))
          return;
        files.push_back(entry.path());
        if (files.size() > kMaxFolderFiles) refuse();
      });
  if (!whole) refuse();
  std::sort(files.begin(), files.end());
  return files;
}

// Several files beside each other that use the same names are no shards of one checkpoint: somebody wrote a file a
// stage.
bool repeat_names(const std::vector<fs::path>& files, const std::set<fs::path>& folders) {
  for (const fs::path& folder : folders) {
    std::vector<fs::path> beside;
    for (const fs::path& path : files)
      if (path.extension() == ".safetensors" && path.parent_path() == folder) beside.push_back(path);
    bool indexed = false;
    for (const fs::directory_entry& entry : folder_entries(folder, "open"))
      indexed = indexed || entry.path().string().ends_with(".safetensors.index.json");
    if (indexed || beside.size() < 2) continue;  // the index decides; one file cannot repeat itself
    std::set<std::string> seen;
    for (const fs::path& path : beside) {
      const auto file = SafetensorsFile::open(path);
      for (const TensorInfo& info : file->tensors())
        if (!seen.insert(info.name).second) return true;
    }
  }
  return false;
}

// Takes out the files that cannot be read. Where none can, the first of them is the error.
void skip_unreadable(std::vector<fs::path>& files, std::vector<SkippedFile>& skipped) {
  std::vector<fs::path> readable;
  std::optional<Error> first;
  for (const fs::path& path : files) try {
      TensorSource alone(path);
      add_file(alone, path, path.stem().string(), false);
      readable.push_back(path);
    } catch (const Error& error) {
      if (system_refused(error)) throw;
      if (!first) first = error;
      skipped.push_back({path, error.what()});
    }
  if (readable.empty() && first) throw *first;
  files = std::move(readable);
}

// `all`: no file of the folder was left out.
void add_folder(TensorSource& source, const fs::path& folder, const std::vector<fs::path>& files, bool all) {
  if (files.empty())
    fail(Code::kNotFound, "open", folder.string() + " holds no tensor files",
         {.expected = ".npy, .npz, .safetensors, .pt, .pth or .bin files"});
  // Models come as safetensors, often with the same weights once more as .bin beside them.
  std::set<fs::path> components;
  for (const fs::path& path : files)
    if (path.extension() == ".safetensors") components.insert(path.parent_path());
  const bool model = !components.empty() && std::all_of(files.begin(), files.end(), [](const fs::path& path) {
    return path.extension() == ".safetensors" || path.extension() == ".bin";
  }) && !repeat_names(files, components);
  note("open", "{} is taken as {}", folder.string(),
       model ? "a model: one checkpoint a folder" : "a folder of tensor files");
  if (model) {
    for (const fs::path& component : components) {
      std::string prefix = component == folder ? "" : component.lexically_relative(folder).string() + ".";
      std::replace(prefix.begin(), prefix.end(), '/', '.');
      if (all) add_checkpoint(source, component, prefix);
      for (const fs::path& path : files)
        if (!all && path.parent_path() == component && path.extension() == ".safetensors")
          add_safetensors(source, SafetensorsFile::open(path), prefix);
    }
    return;
  }
  for (const fs::path& path : files)
    add_file(source, path, path.lexically_relative(folder).replace_extension().string(), true);
}

std::unique_ptr<TensorSource> open_folder(const fs::path& path, std::vector<SkippedFile>* skipped) {
  const fs::path folder = fs::path(path / "").parent_path();  // without a trailing slash, so that parents compare equal
  std::vector<fs::path> files = tensor_files(folder);
  auto source = std::make_unique<TensorSource>(path);
  try {
    add_folder(*source, folder, files, true);
    return source;
  } catch (const Error& error) {  // only now is each file tried alone: folders hold thousands
    if (!skipped || files.empty() || system_refused(error)) throw;
    skip_unreadable(files, *skipped);
    if (skipped->empty()) throw;
  }
  source = std::make_unique<TensorSource>(path);
  add_folder(*source, folder, files, false);
  return source;
}

}  // namespace

void TensorSource::add(std::span<const TensorInfo> tensors, const std::string& prefix, const std::string& alone,
                       Loader loader) {
  if (tensors.empty()) return;
  Part& part = parts_.emplace_back(Part{tensors_.size(), prefix.size(), std::nullopt, std::move(loader)});
  if (parts_.size() == 1) tensors_.reserve(tensors.size());
  for (const TensorInfo& info : tensors) {
    const bool bare = info.name.empty() && !alone.empty();
    if (bare) part.bare = tensors_.size();
    tensors_.push_back(info);
    if (bare)
      tensors_.back().name = alone;
    else if (!prefix.empty())
      tensors_.back().name.insert(0, prefix);
  }
}

void TensorSource::finish() {
  // The names of one file are distinct already: its parser has seen to it.
  if (tensors_.size() < 2 || (parts_.size() == 1 && !parts_.front().bare)) return;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const size_t other = *position(tensors_[i].name);
    if (other != i)
      fail(Code::kBadInput, "open", path_.string() + " holds two tensors named \"" + tensors_[i].name + "\"",
           {.got = tensors_[other].file.string() + " and " + tensors_[i].file.string()});
  }
}

std::optional<size_t> TensorSource::position(std::string_view name) const {
  std::call_once(indexed_, [this] {
    index_.reserve(tensors_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
  });
  const auto at = index_.find(name);
  return at == index_.end() ? std::nullopt : std::optional(at->second);
}

void TensorSource::add_metadata(const std::map<std::string, std::string>& metadata) {
  metadata_.insert(metadata.begin(), metadata.end());
}

const TensorInfo* TensorSource::find(std::string_view name) const {
  const auto at = position(name);
  return at ? &tensors_[*at] : nullptr;
}

Tensor TensorSource::tensor(std::string_view name) const {
  if (const auto at = position(name)) {
    const auto after = [](size_t position, const Part& part) { return position < part.begin; };
    const Part& part = *std::prev(std::upper_bound(parts_.begin(), parts_.end(), *at, after));
    if (part.bare == at) return part.loader("");
    return part.loader(std::string_view(tensors_[*at].name).substr(part.prefix_size));
  }
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

std::unique_ptr<TensorSource> open_tensors(const fs::path& path, std::vector<SkippedFile>* skipped) {
  auto source = std::make_unique<TensorSource>(path);
  std::error_code error;
  if (fs::is_directory(path, error))
    source = open_folder(path, skipped);
  else if (path.extension() == ".json")
    add_checkpoint(*source, path);
  else
    add_file(*source, path, path.stem().string(), false);
  source->finish();
  note("tensors", "{}: {} tensors", path.string(), source->tensors().size());
  return source;
}

}  // namespace lockstep
