#include "studio/kept_prompts.h"

#include <algorithm>

namespace lockstep {

Tensor KeptPrompts::find(const std::string& key) {
  const auto found = kept_.find(key);
  if (found == kept_.end()) return {};
  found->second.used = Clock::now();
  found->second.turn = ++turn_;
  return found->second.rows;
}

void KeptPrompts::keep(const std::string& key, const Tensor& rows) {
  const uint64_t bytes = rows.bytes() + key.size();
  if (bytes > kMostBytes || kept_.contains(key)) return;
  while (!kept_.empty() && (kept_.size() >= kMost || bytes_ + bytes > kMostBytes)) forget_oldest();
  kept_[key] = {rows, bytes, Clock::now(), ++turn_};
  bytes_ += bytes;
}

void KeptPrompts::forget_oldest() {
  const auto oldest = std::min_element(kept_.begin(), kept_.end(),
                                       [](const auto& a, const auto& b) { return a.second.turn < b.second.turn; });
  bytes_ -= oldest->second.bytes;
  kept_.erase(oldest);
}

void KeptPrompts::forget_unused(Clock::time_point since) {
  std::erase_if(kept_, [&](const auto& one) {
    if (one.second.used >= since) return false;
    bytes_ -= one.second.bytes;
    return true;
  });
}

// Lengths before the texts: no two different pairs are one key, whatever a client calls itself.
std::string PromptsOfRun::key(size_t request, const std::string& prompt) const {
  const std::string& client = clients_[request];
  return prefix_ + "|" + std::to_string(client.size()) + "|" + client + prompt;
}

}  // namespace lockstep
