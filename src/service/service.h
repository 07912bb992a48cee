// The one service behind every face: looks a name up in the operations table, checks the arguments, calls.
#pragma once
#include <memory>
#include <mutex>
#include <span>

#include "debugger/sessions.h"
#include "service/opened_runs.h"
#include "service/operation.h"
#include "studio/studio.h"

namespace lockstep {

std::span<const Operation> operations();                  // the table
const Operation* find_operation(std::string_view name);   // "debug break", "debug_break" or "debug/break"; null: none
const Operation& known_operation(std::string_view name);  // Error{kNotFound} names the nearest

struct RoutedOperation {
  const Operation* operation = nullptr;
  Json arguments;  // that the path holds
};
std::vector<RoutedOperation> operations_at(std::string_view path);  // of a REST path, whatever the method

class Service {
 public:
  explicit Service(fs::path home, StudioOptions studio = {});

  const fs::path& home() const { return home_; }
  Sessions& sessions() { return sessions_; }
  OpenedRuns& opened() { return opened_; }
  Studio& studio();      // opened when first asked for; Error where a model cannot be opened
  bool drawing() const;  // pictures wait or are drawn
  // To everybody who follows /v1/events, if anybody does.
  void tell(const std::string& topic, const Json& data);
  Json call(const Operation& operation, const Json& arguments, CallControl& control);
  // The same, with the bytes of an answer as bytes (Json::binary) and not as base64.
  Json call_with_bytes(const Operation& operation, const Json& arguments, CallControl& control);

 private:
  fs::path home_;
  Sessions sessions_;
  OpenedRuns opened_;
  StudioOptions studio_options_;
  mutable std::mutex mutex_;
  std::unique_ptr<Studio> studio_;
};

// What only the caller knows: its folder, its environment, what its relative paths mean. Done on the caller's side.
Json with_callers_view(const Operation& operation, Json arguments);

// At most about `bytes` of JSON: long texts and lists are cut, and "left_out" says where and how to get the rest.
Json bounded(Json result, size_t bytes);

}  // namespace lockstep
