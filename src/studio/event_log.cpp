#include "studio/event_log.h"

#include "base/shown_json.h"

namespace lockstep {

void EventLog::add(const std::string& topic, const Json& data) {
  add_text(topic, shown_json(data));
}

void EventLog::add_text(const std::string& topic, std::string data) {
  Event event{0, topic, std::move(data)};
  const std::lock_guard lock(mutex_);
  event.id = next_id_++;
  bytes_ += event.data.size();
  events_.push_back(std::move(event));
  while (events_.size() > kMostEvents || bytes_ > kMostBytes) {
    bytes_ -= events_.front().data.size();
    events_.pop_front();
  }
  for (const auto& [number, use] : followers_) use(events_.back());
}

int EventLog::follow(int64_t after_id, Follower use) {
  const std::lock_guard lock(mutex_);
  for (const Event& event : events_)
    if (event.id > after_id) use(event);
  followers_[next_follower_] = std::move(use);
  return next_follower_++;
}

void EventLog::leave(int follower) {
  const std::lock_guard lock(mutex_);
  followers_.erase(follower);
}

size_t EventLog::followers() const {
  const std::lock_guard lock(mutex_);
  return followers_.size();
}

int64_t EventLog::last_id() const {
  const std::lock_guard lock(mutex_);
  return next_id_ - 1;
}

}  // namespace lockstep
