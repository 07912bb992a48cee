#include "cli/engine_profile.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "capture/run_folder.h"
#include "capture/store.h"
#include "tensor/storage.h"

namespace lockstep {
namespace {

int64_t clock_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// "vae", "vae.decoder", "vae.decoder.up_blocks.0": a number belongs to the list before it.
std::vector<std::string> scopes_of(std::string_view name) {
  std::vector<std::string> scopes;
  size_t at = 0;
  while (at < name.size()) {
    size_t end = std::min(name.find('.', at), name.size());
    while (end + 1 < name.size() && name[end + 1] >= '0' && name[end + 1] <= '9')
      end = std::min(name.find('.', end + 1), name.size());
    scopes.emplace_back(name.substr(0, end));
    at = end + 1;
  }
  return scopes;
}

}  // namespace

EngineProfile::EngineProfile(Tap* inner) : inner_(inner) {
  reset_peak_memory();
  last_ = mark();
  cpu_at_start_ = last_.cpu_ns;
  profile_.pid = ::getpid();
  profile_.begin_ns = last_.wall_ns;
  profile_.memory = "tensors";
  profile_.frameworks = {"lockstep"};
}

EngineProfile::Mark EngineProfile::mark() {
  return {clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_PROCESS_CPUTIME_ID),
          static_cast<int64_t>(memory_use().in_use_bytes)};
}

bool EngineProfile::wants(std::string_view name) const {
  note(name);
  return inner_ && inner_->wants(name);
}

std::optional<Tensor> EngineProfile::offer(const TensorKey& key, const Tensor& tensor) {
  std::optional<Tensor> replaced = inner_ ? inner_->offer(key, tensor) : std::nullopt;
  last_ = mark();  // recording is no part of the module
  return replaced;
}

void EngineProfile::close_to(size_t depth, const Mark& at) const {
  while (open_.size() > depth) {
    ProfiledCall& call = profile_.calls[static_cast<size_t>(open_.back())];
    call.end_ns = at.wall_ns;
    call.cpu_ns = at.cpu_ns - call.cpu_ns;
    call.live_after = at.live;
    open_.pop_back();
    opened_.pop_back();
  }
}

void EngineProfile::note(std::string_view name) const {
  const Mark now = mark();
  const auto peak = static_cast<int64_t>(memory_use().peak_bytes);
  reset_peak_memory();
  const std::vector<std::string> scopes = scopes_of(name);
  size_t common = 0;
  while (common < std::min(scopes.size(), opened_.size()) && scopes[common] == opened_[common]) ++common;
  close_to(common, last_);
  for (size_t i = common; i < scopes.size(); ++i) {
    const auto number = numbers_.try_emplace(scopes[i], static_cast<int32_t>(profile_.names.size()));
    if (number.second) profile_.names.push_back(scopes[i]);
    profile_.calls.push_back({.name = number.first->second,
                              .parent = open_.empty() ? -1 : open_.back(),
                              .thread = 1,
                              .begin_ns = last_.wall_ns,
                              .end_ns = now.wall_ns,
                              .cpu_ns = last_.cpu_ns,
                              .live_before = last_.live,
                              .live_after = now.live});
    open_.push_back(static_cast<int32_t>(profile_.calls.size()) - 1);
    opened_.push_back(scopes[i]);
  }
  for (const int32_t call : open_) {
    ProfiledCall& entry = profile_.calls[static_cast<size_t>(call)];
    entry.peak = std::max({entry.peak, peak, now.live});
    entry.allocated += std::max<int64_t>(peak - last_.live, 0);  // at least: what was freed and taken again is not seen
  }
  close_to(scopes.size(), now);
  last_ = mark();
}

fs::path EngineProfile::write(const fs::path& home, const std::string& name, const Json& details) {
  close_to(0, last_);
  profile_.end_ns = clock_ns(CLOCK_MONOTONIC);
  profile_.cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_at_start_;
  const Store store(home);
  Store::NewRun made = store.create();
  Json manifest{{"format", "lockstep-run"}, {"version", 1},          {"id", made.id},       {"name", name},
                {"created", utc_now()},     {"finished", utc_now()}, {"status", "finished"}};
  merge_into(manifest, details);
  write_profile(made.path, profile_);
  RunFolder(made.path).write_manifest(manifest);
  made.keep();
  store.point_latest(name, made.path);
  return made.path;
}

}  // namespace lockstep
