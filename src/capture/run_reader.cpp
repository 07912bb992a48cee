#include "capture/run_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/folder.h"
#include "capture/checksum.h"
#include "capture/ranks.h"
#include "capture/run_folder.h"
#include "capture/run_lock.h"
#include "capture/store.h"
#include "io/npy.h"

namespace lockstep {
namespace {

constexpr size_t kMaxRecords = 50'000'000;

// "tensors/FILE": anything else could lead out of the run.
bool is_inside(const std::string& file) {
  constexpr std::string_view kFolder = "tensors/";
  if (!file.starts_with(kFolder) || file.size() > 4096) return false;
  const std::string_view name = std::string_view(file).substr(kFolder.size());
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

bool is_primary(Role role) {
  return role == Role::kOutput || role == Role::kCheckpoint;
}

}  // namespace

Run Run::open(std::string_view spec, const fs::path& home) {
  return open_path(Store(home).resolve(spec));
}

Run Run::open_path(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) fail(Code::kNotFound, "run", path.string() + " does not exist");
  if (!fs::is_directory(path, error) || !fs::exists(path / "run.json", error)) return open_plain_folder(path);
  Run run = open_folder(path);
  run.add_ranks();
  run.index_records();
  return run;
}

Run Run::open_folder(const fs::path& path) {
  Run run;
  run.path_ = path;
  run.manifest_ = read_json(path / "run.json", 16 << 20);
  if (!run.manifest_.is_object() || run.text("format") != "lockstep-run")
    fail(Code::kCorrupt, "run", path.string() + "/run.json is not a run's",
         {.expected = "format \"lockstep-run\"", .got = "\"" + run.text("format").substr(0, 40) + "\""});
  if (run.manifest_.value("version", Json()) != 1)
    fail(Code::kUnsupported, "run", path.string() + " has a version we do not read",
         {.expected = "1", .got = run.manifest_.value("version", Json()).dump().substr(0, 40)});
  if (run.status() == "running" && !run_is_live(path)) {
    try {
      recover_run(path);
    } catch (const Error&) {
      // A folder that may not be written is read as it is. One that may holds records that have not been saved yet.
      if (::access(path.c_str(), W_OK) == 0) throw;
    }
    run.manifest_ = read_json(path / "run.json", 16 << 20);
    if (run.status() == "running" && !run_is_live(path)) run.manifest_["status"] = "killed";
  }
  run.read_records();
  return run;
}

void Run::add_ranks() {
  Json ranks = Json::array();
  for (const RankPart& part : rank_parts(path_)) {
    Run own;
    try {
      own = open_folder(part.path);
    } catch (const Error& error) {
      if (system_refused(error)) throw;
      ++skipped_lines_;  // not a run's: counted as what cannot be read
      continue;
    }
    const std::string rank = std::to_string(part.rank);
    const int64_t before = records_.empty() ? 0 : records_.back().seq + 1;
    for (Record& record : own.records_) {
      if (records_.size() >= kMaxRecords) break;
      record.seq += before;
      if (record.same_as >= 0) record.same_as += before;
      if (!record.file.empty()) record.file = "ranks/" + rank + "/" + record.file;
      std::erase_if(record.key.tags, [](const auto& tag) { return tag.first == "rank"; });
      record.key.tags.emplace_back("rank", rank);
      std::sort(record.key.tags.begin(), record.key.tags.end());
      records_.push_back(std::move(record));
    }
    skipped_lines_ += own.skipped_lines_;
    ranks.push_back({{"rank", part.rank}, {"status", own.status()}, {"records", own.records_.size()}});
    for (const char* field : {"producer", "versions", "model", "settings", "weight_files"})
      if (!manifest_.contains(field) && own.manifest_.contains(field)) manifest_[field] = own.manifest_[field];
  }
  manifest_.erase("ranks");  // whatever run.json itself says
  if (!ranks.empty()) manifest_["ranks"] = std::move(ranks);
}

std::string Run::text(const char* field) const {
  const auto at = manifest_.find(field);
  return at != manifest_.end() && at->is_string() ? at->get<std::string>() : std::string();
}

void Run::read_records() {
  std::error_code error;
  const fs::path file = path_ / "records.jsonl";
  if (!fs::exists(file, error)) return;
  const auto mapped = MappedFile::open(file);
  const std::string_view all(reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size());
  size_t at = 0;
  while (at < all.size()) {
    const size_t end = all.find('\n', at);
    const bool torn = end == std::string_view::npos;
    const std::string_view line = all.substr(at, torn ? std::string_view::npos : end - at);
    at = torn ? all.size() : end + 1;
    if (line.empty()) continue;
    std::optional<Record> record = torn ? std::nullopt : record_from_line(line);
    if (record && !record->file.empty() && !is_inside(record->file)) record.reset();
    if (!record || records_.size() >= kMaxRecords) {
      ++skipped_lines_;
      continue;
    }
    records_.push_back(std::move(*record));
  }
}

void Run::index_records() {
  for (size_t i = 0; i < records_.size(); ++i) by_name_[records_[i].key.name].push_back(i);
}

const Record* Run::find(const TensorKey& key, std::optional<Role> role) const {
  const auto at = by_name_.find(key.name);
  if (at == by_name_.end()) return nullptr;
  const Record* other = nullptr;
  for (const size_t i : at->second) {
    const Record& record = records_[i];
    if (record.key != key) continue;
    if (role ? record.role == *role : is_primary(record.role)) return &record;
    if (!role && !other) other = &record;
  }
  // A reader that asks for an output is content with a checkpoint of that name, and the other way round.
  if (role && is_primary(*role))
    for (const size_t i : at->second)
      if (records_[i].key == key && is_primary(records_[i].role)) return &records_[i];
  return other;
}

Tensor Run::tensor(const Record& record) const {
  if (!loaders_.empty()) return loaders_.at(static_cast<size_t>(&record - records_.data()))();
  if (record.file.empty())
    fail(Code::kNotFound, "tensor", to_string(record.key) + " was recorded with statistics only",
         {.hint = "recording again with --full '" + record.key.name + "'"});
  if (!record.dtype)
    fail(Code::kUnsupported, "tensor", to_string(record.key) + " has a dtype we do not read",
         {.got = record.dtype_text});
  fs::path file = path_ / record.file;
  std::error_code error;
  // A newer run of the same name may have moved this one to the archive meanwhile.
  if (!fs::exists(file, error)) {
    const fs::path archived = path_.parent_path().parent_path() / "archive" / path_.filename() / record.file;
    if (fs::exists(archived, error)) file = archived;
  }
  const Tensor values = read_npy(file, record.dtype);
  if (values.shape() != record.shape || values.dtype() != *record.dtype)
    fail(Code::kCorrupt, "tensor", file.string() + " is not what its record says",
         {.expected = record.dtype_text + " " + to_string(record.shape),
          .got = std::string(dtype_name(values.dtype())) + " " + to_string(values.shape())});
  return values;
}

bool Run::checksum_matches(const Record& record) const {
  if (record.checksum.empty()) return true;
  return checksum_text(tensor(record).contiguous().contiguous_bytes()) == record.checksum;
}

}  // namespace lockstep
