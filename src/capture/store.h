// The run store: .lockstep/runs, its archive, its limits, and what a user may call a run.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/number_text.h"

namespace lockstep {

// --home, else LOCKSTEP_HOME, else .lockstep in the working directory.
fs::path home_folder(std::string_view option = {});

struct RunSummary {
  fs::path path;
  std::string id, name, status, created;
  bool archived = false, live = false;  // live: its writer still holds it
};

struct StoreLimits {
  uint64_t warn_bytes = 1'000'000'000, refuse_bytes = 10'000'000'000;
};

class Store {
 public:
  explicit Store(fs::path home) : home_(std::move(home)) {}

  const fs::path& home() const { return home_; }
  fs::path runs_folder() const { return home_ / "runs"; }
  fs::path archive_folder() const { return home_ / "archive"; }

  std::vector<RunSummary> list() const;  // newest first, archived ones included
  // id, unique prefix, "latest", "latest:NAME" or a path. Error{kNotFound} names what is near.
  fs::path resolve(std::string_view spec) const;

  // An empty folder nobody else has. It goes again unless it is kept: a run without run.json is none.
  struct NewRun {
    fs::path path;
    std::string id;
    bool made = false;

    NewRun() = default;
    NewRun(NewRun&& from) noexcept
        : path(std::move(from.path)), id(std::move(from.id)), made(std::exchange(from.made, false)) {}
    ~NewRun();
    void keep() { made = false; }
  };
  NewRun create() const;
  void point_latest(std::string_view name, const fs::path& run) const;  // latest/NAME; Error{kIo}
  // Moves finished runs of this name, all but the newest `keep`, to the archive; returns how many.
  int archive_older(std::string_view name, size_t keep) const;
  void archive(const fs::path& run) const;
  uint64_t remove(const fs::path& run) const;  // bytes freed; a live run is refused
  // Takes something of the home folder out of its place in one step, then deletes it: killed in between, it is gone all
  // the same, and what is left in the trash goes with the next clean.
  void discard(const fs::path& path) const;

  uint64_t size_bytes() const;
  StoreLimits limits() const;  // limits.json, else the defaults
  void set_limits(const StoreLimits& limits) const;

 private:
  fs::path home_;
};

uint64_t folder_bytes(const fs::path& folder);
std::string utc_now();  // "2026-01-31T12:00:00.123Z"
std::optional<uint64_t> bytes_from_text(
    std::string_view text);  // "500MB", "2 GiB", "1000000"; 1000s for B, 1024s for iB

}  // namespace lockstep
