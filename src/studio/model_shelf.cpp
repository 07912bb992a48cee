#include "studio/model_shelf.h"

namespace lockstep {

PartShelf::Part ModelShelf::part(const std::string& key, const Backend& backend,
                                 const std::function<PartShelf::Part()>& load) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = kept_.find(key); found != kept_.end()) {
      found->second.used = Clock::now();
      return found->second.part;
    }
    make_room(known_bytes_[key]);
  }
  const uint64_t before = backend.memory().in_use_bytes;
  PartShelf::Part loaded = load();
  const uint64_t after = backend.memory().in_use_bytes, bytes = after > before ? after - before : 0;
  const std::lock_guard lock(mutex_);
  ++loads_;
  known_bytes_[key] = bytes;
  make_room(bytes);
  if (bytes <= budget_bytes_) kept_[key] = {loaded, bytes, Clock::now()};
  return loaded;
}

void ModelShelf::make_room(uint64_t bytes) {
  uint64_t held = 0;
  for (const auto& [key, one] : kept_) held += one.bytes;
  while (!kept_.empty() && held + bytes > budget_bytes_) {
    auto oldest = kept_.begin();
    for (auto one = kept_.begin(); one != kept_.end(); ++one)
      if (one->second.used < oldest->second.used) oldest = one;
    held -= oldest->second.bytes;
    kept_.erase(oldest);  // whoever computes with it holds it until it is done
  }
}

void ModelShelf::set_budget(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  budget_bytes_ = bytes;
  make_room(0);
}

uint64_t ModelShelf::unload_idle(Clock::time_point unused_since) {
  const std::lock_guard lock(mutex_);
  uint64_t gone = 0;
  std::erase_if(kept_, [&](const auto& one) {
    if (one.second.used >= unused_since) return false;
    gone += one.second.bytes;
    return true;
  });
  return gone;
}

uint64_t ModelShelf::bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t held = 0;
  for (const auto& [key, one] : kept_) held += one.bytes;
  return held;
}

std::map<std::string, uint64_t> ModelShelf::parts() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, uint64_t> all;
  for (const auto& [key, one] : kept_) all[key] = one.bytes;
  return all;
}

uint64_t ModelShelf::loads() const {
  const std::lock_guard lock(mutex_);
  return loads_;
}

}  // namespace lockstep
