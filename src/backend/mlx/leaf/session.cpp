#include "backend/mlx/leaf/session.h"

#include <cstring>
#include <variant>

namespace lockstep::mlx {

// A stream of MLX belongs to the thread that made it, unless it is one of these: pictures are drawn on one thread and
// may be looked at on another. The mutex keeps them apart.
Session::Session()
    : gpu_(mx::is_available(mx::Device::gpu)),
      stream_(mx::new_thread_unsafe_stream(gpu_ ? mx::Device::gpu : mx::Device::cpu)) {}

Facts Session::facts() const {
  Facts facts{};
  std::strncpy(facts.version, mx::version(), sizeof(facts.version) - 1);
  facts.gpu = gpu_;
  const auto& info = mx::device_info(stream_.device);
  const auto text = [&](const char* key) {
    const auto found = info.find(key);
    const auto* value = found == info.end() ? nullptr : std::get_if<std::string>(&found->second);
    return value ? *value : std::string();
  };
  std::strncpy(facts.device, text("device_name").c_str(), sizeof(facts.device) - 1);
  for (const char* key : {"max_recommended_working_set_size", "memory_size", "total_memory"})
    if (const auto found = info.find(key); found != info.end() && !facts.total_bytes)
      if (const auto* bytes = std::get_if<size_t>(&found->second)) facts.total_bytes = *bytes;
  return facts;
}

void Session::enter() {
  thread_local bool entered = false;
  if (entered) return;
  mx::set_default_device(stream_.device);
  mx::set_default_stream(stream_);
  entered = true;
}

void Session::mark(Slot& slot) {
  if (slot.dirty_at) return;
  dirty_.push_back(&slot);
  slot.dirty_at = dirty_.size();
}

void Session::forget(Slot& slot) {
  if (!slot.dirty_at) return;
  Slot* const last = dirty_.back();
  dirty_[slot.dirty_at - 1] = last;
  last->dirty_at = slot.dirty_at;
  dirty_.pop_back();
  slot.dirty_at = 0;
}

void Session::flush() {
  std::vector<mx::array> wanted;
  for (Slot* slot : dirty_) {
    slot->dirty_at = 0;
    if (slot->value && slot->value->status() == mx::array::Status::unscheduled) wanted.push_back(*slot->value);
  }
  dirty_.clear();
  if (!wanted.empty()) mx::async_eval(std::move(wanted));
}

void Session::synchronize() {
  flush();
  mx::synchronize(stream_);
}

Session& session() {
  static Session* const instance = new Session;  // never destroyed: storages may outlive any order of destruction
  return *instance;
}

bool on_gpu() {
  return session().gpu();
}

std::string& last_message() {
  thread_local std::string message;
  return message;
}

}  // namespace lockstep::mlx
