#include "io/checkpoint.h"

#include <simdjson.h>

#include <algorithm>
#include <new>
#include <unordered_set>

#include "base/error.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/names.h"

namespace lockstep {
namespace {

constexpr std::string_view kExtension = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr uint64_t kMaxIndexBytes = 256ull << 20;

struct FoundFiles {
  std::vector<fs::path> indexes, shards;
};

FoundFiles list_folder(const fs::path& folder) {
  FoundFiles found;
  for (const fs::directory_entry& entry : folder_entries(folder, "checkpoint")) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kIndexSuffix))
      found.indexes.push_back(entry.path());
    else if (name.ends_with(kExtension))
      found.shards.push_back(entry.path());
  }
  std::sort(found.indexes.begin(), found.indexes.end());
  // mflux writes 0, 1, ..., 10: shorter names first keeps the numbers in order.
  std::sort(found.shards.begin(), found.shards.end(), [](const fs::path& a, const fs::path& b) {
    const size_t x = a.native().size(), y = b.native().size();
    return x != y ? x < y : a < b;
  });
  return found;
}

}  // namespace

// simdjson: an index may name a hundred thousand tensors, and a tree that looks each key up among those before it would
// take minutes for them.
CheckpointIndex parse_checkpoint_index(std::string_view text, std::string_view origin) {
  const auto corrupt = [&](const std::string& what, const Detail& detail = {}) {
    fail(Code::kCorrupt, "checkpoint", std::string(origin) + ": " + what, detail);
  };
  simdjson::dom::parser parser;
  const auto room = parser.allocate(std::max<size_t>(text.size(), 1), kMaxJsonDepth);
  if (room == simdjson::MEMALLOC) throw std::bad_alloc();
  if (room) corrupt("too large to parse");
  simdjson::dom::element root;
  const auto error = parser.parse(text.data(), text.size(), true).get(root);
  if (error == simdjson::MEMALLOC) throw std::bad_alloc();
  if (error) corrupt(std::string("not valid JSON: ") + simdjson::error_message(error));
  simdjson::dom::object object, map;
  bool found = false;
  if (!root.get(object))
    for (const auto& [key, value] : object) {
      if (key != "weight_map") continue;
      if (found) corrupt("\"weight_map\" occurs twice");
      found = !value.get(map);
      if (!found) break;
    }
  if (!found) corrupt("not a checkpoint index", {.expected = "an object with \"weight_map\""});
  CheckpointIndex index;
  std::unordered_set<std::string_view> names;
  for (const auto& [name, file] : map) {
    std::string_view shard;
    if (file.get(shard)) corrupt("the file of \"" + std::string(name) + "\" is not a string");
    if (!names.insert(name).second) corrupt("holds the key \"" + std::string(name) + "\" twice");
    // A plain file name only: a path could lead out of the folder.
    if (shard.empty() || shard == "." || shard == ".." || shard.find('/') != std::string_view::npos ||
        shard.find('\\') != std::string_view::npos || shard.find('\0') != std::string_view::npos)
      corrupt("\"" + std::string(name) + "\" points outside the folder",
              {.expected = "a plain file name", .got = std::string(shard)});
    index.emplace_back(name, shard);
  }
  return index;
}

Checkpoint Checkpoint::open(const fs::path& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    if (path.filename().string().ends_with(".json"))
      checkpoint.open_index(path);
    else
      checkpoint.open_files({path});
    return checkpoint;
  }
  const FoundFiles found = list_folder(path);
  if (found.indexes.size() > 1)
    fail(Code::kBadInput, "checkpoint", path.string() + " holds several indexes",
         {.expected = "one", .got = std::to_string(found.indexes.size()), .hint = found.indexes.front().string()});
  if (found.indexes.empty() && found.shards.empty())
    fail(Code::kNotFound, "checkpoint", path.string() + " holds no safetensors files");
  if (found.indexes.empty())
    checkpoint.open_files(found.shards);
  else
    checkpoint.open_index(found.indexes.front());
  return checkpoint;
}

void Checkpoint::open_index(const fs::path& index_path) {
  const CheckpointIndex index = parse_checkpoint_index(read_text(index_path, kMaxIndexBytes), index_path.string());
  std::unordered_map<std::string_view, std::string_view> wanted;  // name → shard
  std::vector<std::string> shards;
  wanted.reserve(index.size());
  for (const auto& [name, shard] : index) {
    wanted.emplace(name, shard);
    if (shards.empty() || shards.back() != shard) shards.push_back(shard);
  }
  tensors_.reserve(index.size());
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  index_.reserve(index.size());
  for (const std::string& shard : shards) {
    const auto file = SafetensorsFile::open(index_path.parent_path() / shard);
    add_file(file, [&](const TensorInfo& info) {
      const auto at = wanted.find(info.name);
      return at == wanted.end() || at->second == shard;  // the index decides which of two copies counts
    });
  }
  for (const auto& [name, shard] : index)
    if (!index_.contains(name))
      fail(Code::kCorrupt, "checkpoint", index_path.string() + " promises \"" + name + "\"",
           {.expected = "it in " + shard, .got = "no such tensor there"});
}

void Checkpoint::open_files(const std::vector<fs::path>& files) {
  for (const fs::path& path : files) add_file(SafetensorsFile::open(path), [](const TensorInfo&) { return true; });
}

template <typename Wanted>
void Checkpoint::add_file(const std::shared_ptr<const SafetensorsFile>& file, const Wanted& wanted) {
  files_.push_back(file);
  for (const TensorInfo& info : file->tensors()) {
    if (!wanted(info)) continue;
    const auto [at, fresh] = index_.emplace(info.name, Place{tensors_.size(), files_.size() - 1});
    if (!fresh)
      fail(Code::kCorrupt, "checkpoint", "\"" + info.name + "\" is in two files",
           {.expected = "each name once",
            .got = tensors_[at->second.tensor].file.string() + " and " + info.file.string(),
            .hint = "to open one of them"});
    tensors_.push_back(info);
  }
  metadata_.insert(file->metadata().begin(), file->metadata().end());
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto at = index_.find(name);
  return at == index_.end() ? nullptr : &tensors_[at->second.tensor];
}

Tensor Checkpoint::tensor(std::string_view name) const {
  const auto at = index_.find(name);
  if (at != index_.end()) return files_[at->second.file]->tensor(name);
  std::vector<std::string> known;
  for (const TensorInfo& info : tensors_) known.push_back(info.name);
  std::string near;
  for (const std::string& candidate : nearest_names(name, known)) near += (near.empty() ? "" : ", ") + candidate;
  fail(Code::kNotFound, "checkpoint", path_.string() + " has no tensor \"" + std::string(name) + "\"", {.hint = near});
}

void Checkpoint::drop_pages(std::string_view name) const {
  const auto at = index_.find(name);
  if (at != index_.end()) files_[at->second.file]->drop_pages(name);
}

bool Checkpoint::holds(const Tensor& tensor) const {
  return std::any_of(files_.begin(), files_.end(), [&](const auto& file) { return file->holds(tensor); });
}

}  // namespace lockstep
