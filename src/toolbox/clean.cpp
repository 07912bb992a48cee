#include "toolbox/clean.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <map>

#include "base/decimal.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/interrupt.h"
#include "base/names.h"
#include "capture/run_lock.h"
#include "capture/saved_tensors.h"
#include "capture/store.h"
#include "toolbox/started_programs.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 5> kKindNames{"runs", "archive", "sessions", "saved", "leftovers"};
constexpr uint64_t kMostRecordBytes = 64 << 20;
constexpr double kJustMadeSecs = 60;  // a folder without its record may be one that is being made

double age_of(const fs::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return 0;
  return std::max(0.0, std::difftime(std::time(nullptr), info.st_mtime));
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : folder_entries(folder, "clean")) found.push_back(entry.path());
  return found;
}

Json record_in(const fs::path& file) {
  try {
    Json record = read_json(file, kMostRecordBytes);
    return record.is_object() ? record : Json::object();
  } catch (const Error& error) {
    if (system_refused(error)) throw;
    return Json();
  }
}

std::string session_in_use(const fs::path& folder) {
  const std::optional<ProcessFacts> process = process_in(folder / "session.json", "process_start_ticks");
  return process ? fmt::format("its program is alive as process {}", process->pid) : "";
}

std::string why_in_use(const StoredItem& item) {
  switch (item.kind) {
    case StoredKind::kRun:
    case StoredKind::kArchive:
      return run_is_live(item.path) ? "it is being recorded" : "";
    case StoredKind::kSession:
      return session_in_use(item.path);
    case StoredKind::kSaved:
      return {};
    case StoredKind::kLeftover:
      return item.age_secs < kJustMadeSecs || run_is_live(item.path) ? "it is being made" : "";
  }
  return {};
}

class Inventory {
 public:
  explicit Inventory(const fs::path& home) : home_(home) {
    add_runs();
    add_sessions();
    for (const SavedTensor& tensor : saved_tensors(home))
      add({StoredKind::kSaved, tensor.file.filename().string(), tensor.name, tensor.file});
    for (const fs::path& path : entries_of(home / "trash")) add_leftover(path);
    for (const fs::path& path : entries_of(home / "latest")) {
      std::error_code error;
      if (fs::is_symlink(path, error) && !fs::exists(path, error)) add_leftover(path);  // its run has gone
    }
  }
  std::vector<StoredItem> items;  // newest first

  void sort() {
    std::sort(items.begin(), items.end(),
              [](const auto& a, const auto& b) { return std::tie(a.age_secs, b.id) < std::tie(b.age_secs, a.id); });
  }

 private:
  void add(StoredItem item) {
    check_interrupt("clean");
    item.age_secs = age_of(item.path);
    for (const char* record : {"run.json", "session.json"})
      if (std::error_code error; fs::exists(item.path / record, error))
        item.age_secs = std::min(item.age_secs, age_of(item.path / record));
    std::error_code error;
    item.bytes = fs::is_directory(fs::symlink_status(item.path, error)) ? folder_bytes(item.path)
                 : fs::is_regular_file(item.path, error)                ? fs::file_size(item.path, error)
                                                                        : 0;
    item.in_use = why_in_use(item);
    items.push_back(std::move(item));
  }
  void add_leftover(const fs::path& path) { add({StoredKind::kLeftover, path.filename().string(), {}, path}); }

  void add_runs() {
    const Store store(home_);
    std::map<fs::path, RunSummary> known;
    for (RunSummary& run : store.list()) known.emplace(run.path, run);
    for (const fs::path& folder : {store.runs_folder(), store.archive_folder()})
      for (const fs::path& path : entries_of(folder)) {
        const auto run = known.find(path);
        if (run == known.end())
          add_leftover(path);
        else
          add({run->second.archived ? StoredKind::kArchive : StoredKind::kRun, run->second.id, run->second.name, path});
      }
  }

  void add_sessions() {
    for (const fs::path& path : entries_of(home_ / "sessions")) {
      const Json record = record_in(path / "session.json");
      if (!record.is_object()) {
        add_leftover(path);
        continue;
      }
      const Json name = record.value("session", Json(""));
      add({StoredKind::kSession, path.filename().string(), name.is_string() ? name.get<std::string>() : "", path});
    }
  }

  fs::path home_;
};

std::vector<std::string> checked_kinds(const std::vector<std::string>& asked) {
  for (const std::string& kind : asked)
    if (std::find(kKindNames.begin(), kKindNames.end(), kind) == kKindNames.end()) {
      const std::vector<std::string> near = nearest_names(kind, kind_names(), 1);
      fail(Code::kUsage, "clean", "there is no kind '" + kind + "'",
           {.expected = fmt::format("{}", fmt::join(kKindNames, ", ")), .hint = near.empty() ? "runs" : near[0]});
    }
  return asked.empty() ? std::vector<std::string>{"runs", "archive", "sessions", "leftovers"} : asked;
}

}  // namespace

std::string_view kind_name(StoredKind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

std::vector<std::string> kind_names() {
  return {kKindNames.begin(), kKindNames.end()};
}

CleanPlan plan_clean(const fs::path& home, const CleanRequest& request) {
  const std::vector<std::string> kinds = checked_kinds(request.kinds);
  Inventory inventory(home);
  inventory.sort();
  CleanPlan plan;
  std::map<std::pair<StoredKind, std::string>, size_t> seen;
  for (StoredItem& item : inventory.items) {
    if (std::find(kinds.begin(), kinds.end(), kind_name(item.kind)) == kinds.end()) continue;
    // A run in the archive is a run of its name like any other.
    const StoredKind alike = item.kind == StoredKind::kArchive ? StoredKind::kRun : item.kind;
    const bool newest = item.kind != StoredKind::kLeftover && seen[{alike, item.name}]++ < request.keep_last;
    if (newest || (request.older_than_secs && item.age_secs < *request.older_than_secs)) continue;
    if (!item.in_use.empty()) {
      plan.in_use.push_back(std::move(item));
      continue;
    }
    plan.bytes += item.bytes;
    plan.remove.push_back(std::move(item));
  }
  return plan;
}

std::vector<StoredItem> remove_items(const fs::path& home, const std::vector<StoredItem>& items) {
  const Store store(home);
  std::vector<StoredItem> removed;
  for (const StoredItem& item : items) {
    check_interrupt("clean");
    if (!why_in_use(item).empty()) continue;
    if (item.kind == StoredKind::kSaved)
      remove_saved({item.name, item.path, item.bytes});
    else
      store.discard(item.path);
    removed.push_back(item);
  }
  return removed;
}

double age_from_text(std::string_view text) {
  double value = 0;
  const auto [end, error] = read_decimal(text.data(), text.data() + text.size(), value);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  static const std::map<std::string_view, double> kUnits{
      {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}, {"w", 7 * 86400}};
  const auto found = kUnits.find(unit);
  if (error != std::errc{} || !(value >= 0) || !(value < 1e9) || found == kUnits.end())
    fail(Code::kUsage, "clean", "this is no age",
         {.expected = "a number and s, m, h, d or w, such as 7d", .got = "'" + std::string(text.substr(0, 40)) + "'"});
  return value * found->second;
}

std::string text_from_age(double secs) {
  for (const auto& [unit, length] : {std::pair{"day", 86400.0}, {"hour", 3600.0}, {"minute", 60.0}})
    if (secs >= length) {
      const auto count = static_cast<int64_t>(secs / length);
      return fmt::format("{} {}{}", count, unit, count == 1 ? "" : "s");
    }
  return "just now";
}

Json json_from(const StoredItem& item) {
  Json json{{"kind", kind_name(item.kind)}, {"id", item.id},       {"name", item.name},
            {"path", item.path.string()},   {"bytes", item.bytes}, {"age_secs", item.age_secs}};
  if (!item.in_use.empty()) json["in_use"] = item.in_use;
  return json;
}

}  // namespace lockstep
