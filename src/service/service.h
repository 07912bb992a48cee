// The one service behind every face: looks a name up in the operations table, checks the arguments, calls.
#pragma once
#include <span>

#include "debugger/sessions.h"
#include "service/opened_runs.h"
#include "service/operation.h"

namespace lockstep {

std::span<const Operation> operations();                  // the table
const Operation* find_operation(std::string_view name);   // "debug break", "debug_break" or "debug/break"; null: none
const Operation& known_operation(std::string_view name);  // Error{kNotFound} names the nearest

class Service {
 public:
  explicit Service(fs::path home);

  const fs::path& home() const { return home_; }
  Sessions& sessions() { return sessions_; }
  OpenedRuns& opened() { return opened_; }
  Json call(const Operation& operation, const Json& arguments, CallControl& control);
  // The same, with the bytes of an answer as bytes (Json::binary) and not as base64.
  Json call_with_bytes(const Operation& operation, const Json& arguments, CallControl& control);

 private:
  fs::path home_;
  Sessions sessions_;
  OpenedRuns opened_;
};

// What only the caller knows: its folder, its environment, what its relative paths mean. Done on the caller's side.
Json with_callers_view(const Operation& operation, Json arguments);

// At most about `bytes` of JSON: long texts and lists are cut, and "left_out" says where and how to get the rest.
Json bounded(Json result, size_t bytes);

}  // namespace lockstep
