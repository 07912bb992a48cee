#include "dap/references.h"

#include "base/error.h"

namespace lockstep {
namespace {

constexpr size_t kMostReferences = 1'000'000;  // a client that opens more than this while a thread stands is no editor

template <typename Map>
void check_room(const Map& map) {
  if (map.size() >= kMostReferences)
    fail(Code::kMemory, "dap", "too much is open at this stop", {.hint = "continue, or next"});
}

}  // namespace

int64_t References::add(const FrameReference& frame) {
  const std::lock_guard lock(mutex_);
  check_room(frames_);
  frames_[next_] = frame;
  return next_++;
}

int64_t References::add(OpenReference opened) {
  const std::lock_guard lock(mutex_);
  check_room(opened_);
  opened_[next_] = std::move(opened);
  return next_++;
}

std::optional<FrameReference> References::frame(int64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = frames_.find(number);
  return found == frames_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<OpenReference> References::opened(int64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = opened_.find(number);
  return found == opened_.end() ? std::nullopt : std::optional(found->second);
}

void References::remember(int64_t number, const std::string& name, const std::string& expression) {
  const std::lock_guard lock(mutex_);
  if (const auto found = opened_.find(number); found != opened_.end()) found->second.expressions[name] = expression;
}

void References::forget(int64_t thread) {
  const std::lock_guard lock(mutex_);
  std::erase_if(frames_, [&](const auto& one) { return one.second.thread == thread; });
  std::erase_if(opened_, [&](const auto& one) { return one.second.frame.thread == thread; });
}

void References::forget_all() {
  const std::lock_guard lock(mutex_);
  frames_.clear();
  opened_.clear();
}

}  // namespace lockstep
