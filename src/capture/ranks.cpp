#include "capture/ranks.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "base/platform/process_end.h"
#include "capture/run_folder.h"
#include "capture/run_lock.h"
#include "capture/store.h"

namespace lockstep {
namespace {

constexpr int kMostRanks = 65536;
constexpr auto kBetweenLooks = std::chrono::milliseconds(50);

// A whole number from 0 on, and nothing else.
std::optional<int> number_from(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMostRanks) return std::nullopt;
  return value;
}

std::optional<int> number_in_environment(const char* name) {
  const char* value = name ? std::getenv(name) : nullptr;
  return value ? number_from(value) : std::nullopt;
}

// mlx.launch names the hosts of a ring, one a rank, and gives no count.
int hosts_of_mlx() {
  const char* file = std::getenv("MLX_HOSTFILE");
  if (!file) return 0;
  try {
    const Json hosts = read_json(file, 1 << 20);
    return hosts.is_array() ? static_cast<int>(std::min<size_t>(hosts.size(), kMostRanks)) : 0;
  } catch (const Error&) {  // it is MLX's to complain
    return 0;
  }
}

Json manifest_at(const fs::path& folder) {
  try {
    Json manifest = RunFolder(folder).manifest();
    return manifest.is_object() ? manifest : Json::object();
  } catch (const Error&) {
    return Json::object();
  }
}

std::string text_in(const Json& manifest, const char* field) {
  const auto found = manifest.find(field);
  return found != manifest.end() && found->is_string() ? found->get<std::string>() : std::string();
}

int number_in(const Json& manifest, const char* field) {
  const auto found = manifest.find(field);
  return found != manifest.end() && found->is_number_integer() ? found->get<int>() : 0;
}

}  // namespace

std::optional<RankPlace> rank_from_environment() {
  struct Names {
    const char *rank, *world;
  };
  constexpr Names kLaunchers[] = {{"LOCKSTEP_RANK", "LOCKSTEP_WORLD"},
                                  {"RANK", "WORLD_SIZE"},
                                  {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                  {"PMI_RANK", "PMI_SIZE"},
                                  {"MLX_RANK", "MLX_WORLD_SIZE"}};
  for (const Names& names : kLaunchers) {
    const auto rank = number_in_environment(names.rank);
    auto world = number_in_environment(names.world);
    const bool of_mlx = std::string_view(names.rank) == "MLX_RANK";
    if (of_mlx && !world) world = hosts_of_mlx();
    if (!rank || !world) continue;  // RANK alone may be anything
    if (*world == 1 || (*world > 0 && *rank >= *world)) return std::nullopt;
    return RankPlace{*rank, *world};
  }
  return std::nullopt;
}

fs::path make_rank_folder(const fs::path& run, const RankPlace& place) {
  const fs::path folder = run / "ranks" / std::to_string(place.rank);
  std::error_code error;
  fs::create_directories(folder / "tensors", error);
  if (error) fail(Code::kIo, "record", "cannot make " + folder.string() + ": " + error.message());
  if (fs::exists(folder / "run.json", error)) return folder;
  const Json whole = manifest_at(run);
  RunFolder(folder).write_manifest({{"format", "lockstep-run"},
                                    {"version", 1},
                                    {"id", fmt::format("{}.rank{}", run_id(whole, run), place.rank)},
                                    {"name", text_in(whole, "name")},
                                    {"created", utc_now()},
                                    {"finished", nullptr},
                                    {"status", "running"},
                                    {"rank", place.rank},
                                    {"world", place.world}});
  return folder;
}

std::vector<RankPart> rank_parts(const fs::path& run) {
  std::vector<RankPart> parts;
  std::error_code error;
  for (fs::directory_iterator entry(run / "ranks", error), end; !error && entry != end; entry.increment(error)) {
    const auto rank = number_from(entry->path().filename().string());
    std::error_code none;
    // Not through a link: a part lies in its run.
    if (!rank || !fs::is_directory(entry->symlink_status(none)) || parts.size() >= kMostRanks) continue;
    if (fs::is_regular_file(entry->path() / "run.json", none)) parts.push_back({*rank, entry->path()});
  }
  std::sort(parts.begin(), parts.end(), [](const RankPart& a, const RankPart& b) { return a.rank < b.rank; });
  return parts;
}

RankStates states_of_ranks(const fs::path& run, std::optional<int> first_lost) {
  RankStates out;
  std::string earliest;
  for (const RankPart& part : rank_parts(run)) {
    recover_run(part.path);
    const Json manifest = manifest_at(part.path);
    const std::string status = text_in(manifest, "status");
    out.world = std::max({out.world, number_in(manifest, "world"), part.rank + 1});
    out.ranks.push_back({{"rank", part.rank}, {"status", status}});
    if (status == "finished" || (status == "running" && run_is_live(part.path))) continue;
    // One that failed said when; those that its launcher killed afterwards could not.
    const std::string when = status == "failed" ? text_in(manifest, "finished") : "~";
    if (!out.failed || when < earliest) out.failed = part.rank, out.status = status, earliest = when;
    if (first_lost == part.rank) out.failed = part.rank, out.status = status, earliest.clear();
  }
  return out;
}

RankWatch::~RankWatch() {
  for (const auto& [rank, descriptor] : descriptor_of_) ::close(descriptor);
}

void RankWatch::look() {
  for (auto at = descriptor_of_.begin(); at != descriptor_of_.end();) {
    pollfd one{at->second, POLLIN, 0};
    if (::poll(&one, 1, 0) <= 0) {
      ++at;
      continue;
    }
    const fs::path part = run_ / "ranks" / std::to_string(at->first);
    if (!first_lost_ && text_in(manifest_at(part), "status") != "finished") first_lost_ = at->first;
    ::close(at->second);
    at = descriptor_of_.erase(at);
  }
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  find_new_ranks();
}

void RankWatch::find_new_ranks() {
  for (const RankPart& part : rank_parts(run_)) {
    if (seen_.contains(part.rank)) continue;
    const int pid = number_in(manifest_at(part.path), "pid");
    if (pid <= 0) continue;  // it is just beginning
    seen_.insert(part.rank);
    if (const int descriptor = process_end_descriptor(pid); descriptor >= 0) descriptor_of_[part.rank] = descriptor;
  }
}

std::vector<int> RankWatch::descriptors() const {
  std::vector<int> out;
  for (const auto& [rank, descriptor] : descriptor_of_) out.push_back(descriptor);
  return out;
}

}  // namespace lockstep
