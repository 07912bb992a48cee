// What happened to jobs, numbered, for those who follow and those who come back: the newest events are held, within
// bounds, and a number from before goes on where it left off.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/json.h"

namespace lockstep {

struct Event {
  int64_t id = 0;
  std::string topic;  // "job.queued"
  std::string data;   // JSON in one line
};

class EventLog {
 public:
  using Follower = std::function<void(const Event&)>;

  explicit EventLog(int64_t first_id) : next_id_(first_id) {}

  void add(const std::string& topic, const Json& data);
  void add_text(const std::string& topic, std::string data);  // JSON in one line, nothing in it to be escaped
  // What came after `id` is handed over first, then everything as it comes, in order. Never blocks the caller of add()
  // for longer than `use` takes. Returns a number for leave().
  int follow(int64_t after_id, Follower use);
  void leave(int follower);
  size_t followers() const;
  int64_t last_id() const;

 private:
  static constexpr size_t kMostEvents = 4096;
  static constexpr size_t kMostBytes = 8 << 20;

  mutable std::mutex mutex_;
  std::deque<Event> events_;
  size_t bytes_ = 0;
  int64_t next_id_;
  std::map<int, Follower> followers_;
  int next_follower_ = 1;
};

}  // namespace lockstep
