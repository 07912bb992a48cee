// What several parts of a session read from messages, and the clock they share.
#pragma once
#include <chrono>
#include <string>

#include "base/json.h"

namespace lockstep {

// How long a connection may be gone before its program counts as lost: one that hangs up is about to end.
inline constexpr double kHangUpSecs = 2;
inline constexpr double kReturnSecs = 10;  // a program that calls again does so at once, on a busy machine later

inline double now_secs() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// null: there is none of that name, or what should hold it is no object.
inline Json field(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? Json(nullptr) : *found;
}

inline int64_t whole(const Json& object, const char* name, int64_t otherwise = 0) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

inline std::string text(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

inline bool is_true(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

// The thread that an event is about.
inline int64_t thread_of(const Json& event) {
  const auto thread = event.find("thread");
  return thread != event.end() && thread->is_object() ? whole(*thread, "id") : whole(event, "thread");
}

}  // namespace lockstep
