#include "capture/store.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <new>
#include <random>
#include <set>

#include "base/decimal.h"
#include "base/error.h"
#include "base/file_walk.h"
#include "base/folder.h"
#include "base/names.h"
#include "capture/file_names.h"
#include "capture/run_folder.h"
#include "capture/run_lock.h"

namespace lockstep {
namespace {

std::string text_field(const Json& json, const char* field) {
  const auto at = json.find(field);
  return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
}

// One that is another user's says so for as long as it is there; any other refusal says nothing about a run.
bool is_anothers(const fs::path& file) {
  return ::access(file.c_str(), R_OK) != 0 && errno == EACCES;
}

std::optional<RunSummary> summary_of(const fs::path& folder, bool archived) {
  RunSummary run;
  run.path = folder;
  run.id = folder.filename().string();
  run.archived = archived;
  try {
    const Json manifest = read_json(run.path / "run.json", kMaxManifestBytes);
    if (text_field(manifest, "format") != "lockstep-run") return std::nullopt;
    run.name = text_field(manifest, "name");
    run.status = text_field(manifest, "status");
    run.created = text_field(manifest, "created");
  } catch (const Error& error) {
    if (system_refused(error) && !is_anothers(run.path / "run.json")) throw;
    return std::nullopt;  // not a run, or one that is just being made
  }
  run.live = run.status == "running" && run_is_live(run.path);
  if (run.status == "running" && !run.live) run.status = "killed";
  return run;
}

void list_folder(const fs::path& folder, bool archived, std::vector<RunSummary>& out) {
  for (const fs::directory_entry& entry : folder_entries(folder, "runs"))
    if (std::optional<RunSummary> run = summary_of(entry.path(), archived)) out.push_back(std::move(*run));
}

std::string new_id() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::random_device random;
  return fmt::format("{:04}{:02}{:02}-{:02}{:02}{:02}-{:06x}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, random() & 0xFFFFFF);
}

}  // namespace

fs::path home_folder(std::string_view option) {
  if (!option.empty()) return fs::absolute(fs::path(option));
  const char* environment = std::getenv("LOCKSTEP_HOME");
  return fs::absolute(environment && *environment ? environment : ".lockstep");
}

std::vector<RunSummary> Store::list() const {
  std::vector<RunSummary> runs;
  list_folder(runs_folder(), false, runs);
  list_folder(archive_folder(), true, runs);
  std::sort(runs.begin(), runs.end(), [](const RunSummary& a, const RunSummary& b) {
    return std::tie(a.created, a.id) > std::tie(b.created, b.id);
  });
  return runs;
}

fs::path Store::resolve(std::string_view spec) const {
  if (spec.empty()) fail(Code::kUsage, "run", "no run was named", {.hint = "an id, 'latest' or a path"});
  const bool is_latest = spec == "latest" || spec.starts_with("latest:");
  // A path is told from an id by its separator or by existing as a run folder where the user stands.
  const bool looks_like_path = spec.find('/') != std::string_view::npos || spec == "." || spec == "..";
  std::error_code error;
  // A whole id needs no look at the others, of which there may be thousands.
  if (!is_latest && !looks_like_path)
    for (const fs::path& folder : {runs_folder(), archive_folder()})
      if (fs::path run = folder / spec; fs::is_directory(run, error) && summary_of(run, false)) return run;
  const std::vector<RunSummary> runs = list();
  if (is_latest) {
    const bool any = spec == "latest";
    const std::string name(any ? "" : spec.substr(7));
    std::vector<std::string> names;
    for (const RunSummary& run : runs) {
      if (any || run.name == name) return run.path;
      names.push_back(run.name);
    }
    std::string near;
    for (const std::string& candidate : nearest_names(name, names)) near += " latest:" + candidate;
    fail(Code::kNotFound, "run",
         any ? "the store " + home_.string() + " holds no run" : "no run is named '" + name + "'",
         {.hint = near.empty() ? "'lockstep runs list'" : near.substr(1)});
  }
  std::vector<fs::path> matches;
  if (!looks_like_path)
    for (const RunSummary& run : runs)
      if (run.id.starts_with(spec)) matches.push_back(run.path);
  if (matches.size() == 1) return matches.front();
  if (matches.size() > 1)
    fail(Code::kUsage, "run", fmt::format("'{}' begins {} ids", spec, matches.size()),
         {.hint = matches[0].filename().string() + " or " + matches[1].filename().string()});
  if (fs::exists(fs::path(spec), error)) return fs::absolute(fs::path(spec));
  std::vector<std::string> ids;
  for (const RunSummary& run : runs) ids.push_back(run.id);
  const std::vector<std::string> near = nearest_names(spec, ids, 1);
  fail(Code::kNotFound, "run", "no run '" + std::string(spec) + "' in " + home_.string(),
       {.expected = "an id, a unique prefix, latest, latest:NAME or a path",
        .hint = near.empty() ? "'lockstep runs list'" : near.front()});
}

Store::NewRun::~NewRun() {
  if (!made) return;
  try {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  } catch (const std::bad_alloc&) {  // it stays, empty
  }
}

Store::NewRun Store::create() const {
  std::error_code error;
  fs::create_directories(runs_folder(), error);
  for (int attempt = 0; !error && attempt < 100; ++attempt) {
    NewRun run;
    run.id = new_id();
    run.path = runs_folder() / run.id;
    run.made = fs::create_directory(run.path, error);
    if (!run.made) continue;
    fs::create_directory(run.path / "tensors", error);
    if (!error) return run;
  }
  fail(Code::kIo, "record", "cannot make a run in " + runs_folder().string() + ": " + error.message(),
       {.hint = "--home with a folder you may write to"});
}

void Store::point_latest(std::string_view name, const fs::path& run) const {
  std::error_code error, ignored;
  const fs::path folder = home_ / "latest";
  const fs::path link = folder / escape_name(name), temporary = folder / (run.filename().string() + ".tmp");
  fs::create_directories(folder, error);
  if (!error) fs::create_symlink(fs::path("..") / "runs" / run.filename(), temporary, error);
  if (!error) fs::rename(temporary, link, error);
  if (!error) return;
  fs::remove(temporary, ignored);
  fail(Code::kIo, "record", link.string() + " does not lead to this run: " + error.message());
}

int Store::archive_older(std::string_view name, size_t keep) const {
  int moved = 0;
  size_t seen = 0;
  for (const RunSummary& run : list()) {
    if (run.name != name || run.archived) continue;
    // Not by its status alone: one whose program has ended may still be held by who watches it.
    if (seen++ < keep || run_is_live(run.path)) continue;
    try {
      archive(run.path);
      ++moved;
    } catch (const Error&) {
      std::error_code error;
      if (fs::exists(run.path, error)) throw;  // else another program that has just begun was faster
    }
  }
  return moved;
}

void Store::archive(const fs::path& run) const {
  std::error_code error;
  if (run.parent_path() != runs_folder())
    fail(Code::kBadInput, "archive", run.string() + " is not in " + runs_folder().string());
  if (run_is_live(run)) fail(Code::kBadInput, "archive", run.filename().string() + " is still being recorded");
  fs::create_directories(archive_folder(), error);
  if (!error) fs::rename(run, archive_folder() / run.filename(), error);
  if (error) fail(Code::kIo, "archive", run.string() + ": " + error.message());
}

uint64_t Store::remove(const fs::path& run) const {
  const fs::path parent = run.parent_path();
  if (parent != runs_folder() && parent != archive_folder())
    fail(Code::kBadInput, "remove", run.string() + " is not in the store " + home_.string(),
         {.hint = "deleting that folder yourself if it is to go"});
  if (run_is_live(run)) fail(Code::kBadInput, "remove", run.filename().string() + " is still being recorded");
  const uint64_t bytes = folder_bytes(run);
  discard(run);
  return bytes;
}

void Store::discard(const fs::path& path) const {
  const fs::path trash = home_ / "trash";
  const bool outside = path.parent_path() != trash;
  const fs::path going = outside ? trash / (path.filename().string() + "-" + new_id()) : path;
  struct RemovedWhenEmpty {
    const fs::path& folder;
    ~RemovedWhenEmpty() {
      std::error_code not_empty;
      fs::remove(folder, not_empty);
    }
  } const removed{trash};  // whatever comes of the rest
  std::error_code error;
  if (outside) {
    fs::create_directories(trash, error);
    if (!error) fs::rename(path, going, error);
  }
  const bool in_trash = !error;
  // It is no run any more: what fails once is tried again.
  for (int attempt = 0; in_trash && attempt < 2 && (attempt == 0 || error); ++attempt) try {
      fs::remove_all(going, error);
    } catch (const std::bad_alloc&) {
      error = std::make_error_code(std::errc::not_enough_memory);
    }
  if (error && in_trash)
    fail(Code::kIo, "remove", fmt::format("a part of {} is left: {}", going.string(), error.message()),
         {.hint = "lockstep clean"});
  if (error) fail(Code::kIo, "remove", path.string() + ": " + error.message());
}

uint64_t Store::size_bytes() const {
  return folder_bytes(home_);
}

StoreLimits Store::limits() const {
  StoreLimits limits;
  const fs::path path = home_ / "limits.json";
  std::error_code error;
  if (!fs::exists(path, error)) return limits;
  const Json json = read_json(path, 1 << 16);
  const auto read = [&](const char* field, uint64_t& into) {
    const auto at = json.find(field);
    if (at == json.end()) return;
    if (!at->is_number_unsigned())
      fail(Code::kCorrupt, "limits", path.string() + ": '" + field + "' is not a number of bytes");
    into = at->get<uint64_t>();
  };
  read("warn_bytes", limits.warn_bytes);
  read("refuse_bytes", limits.refuse_bytes);
  return limits;
}

void Store::set_limits(const StoreLimits& limits) const {
  if (limits.warn_bytes > limits.refuse_bytes)
    fail(Code::kBadInput, "limits", "the warning would come after the refusal",
         {.expected = "warn <= refuse", .got = fmt::format("{} > {}", limits.warn_bytes, limits.refuse_bytes)});
  std::error_code error;
  fs::create_directories(home_, error);
  const Json json{{"warn_bytes", limits.warn_bytes}, {"refuse_bytes", limits.refuse_bytes}};
  write_atomically(home_ / "limits.json", json.dump(2) + "\n");
}

uint64_t folder_bytes(const fs::path& folder) {
  uint64_t total = 0;
  std::set<std::pair<dev_t, ino_t>> linked;  // a file with several names takes its room once
  std::error_code error;
  if (!fs::is_directory(folder, error)) return 0;
  walk_files(folder, {}, "runs", [&](const fs::directory_entry& entry) {
    struct stat info {};
    if (::lstat(entry.path().c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        (info.st_nlink < 2 || linked.emplace(info.st_dev, info.st_ino).second))
      total += static_cast<uint64_t>(info.st_size);
  });
  return total;
}

std::string utc_now() {
  using namespace std::chrono;
  const auto now = system_clock::now();
  const std::time_t secs = system_clock::to_time_t(now);
  std::tm utc{};
  gmtime_r(&secs, &utc);
  const auto micros = duration_cast<microseconds>(now.time_since_epoch()).count() % 1'000'000;
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, micros);
}

std::optional<uint64_t> bytes_from_text(std::string_view text) {
  double value = 0;
  const auto [end, error] = read_decimal(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || !(value >= 0)) return std::nullopt;
  std::string unit;
  for (const char c : text.substr(static_cast<size_t>(end - text.data())))
    if (c != ' ') unit += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (!unit.empty() && unit.back() == 'B') unit.pop_back();
  const bool binary = !unit.empty() && unit.back() == 'I';
  if (binary) unit.pop_back();
  constexpr std::string_view kUnits = "KMGT";
  size_t power = 0;
  if (!unit.empty()) {
    power = kUnits.find(unit[0]);
    if (unit.size() != 1 || power == std::string_view::npos) return std::nullopt;
    ++power;
  }
  const double bytes = value * std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power));
  if (!(bytes < 9e18)) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

}  // namespace lockstep
