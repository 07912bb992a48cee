// setBreakpoints, setFunctionBreakpoints, setExceptionBreakpoints, breakpointLocations.
#include <algorithm>

#include "base/error.h"
#include "dap/adapter.h"
#include "dap/fields.h"
#include "dap/log_message.h"

namespace lockstep {
namespace {

using dap::field;
using dap::text;
using dap::whole;

constexpr size_t kMostBreakpoints = 2000;  // of one source

// What a client says of a breakpoint beside its place.
void add_conditions(Json& wanted, const Json& given) {
  if (const std::string condition = text(given, "condition"); !condition.empty()) wanted["if"] = condition;
  if (const std::string hits = text(given, "hitCondition"); !hits.empty()) wanted["hit_when"] = hits;
  if (const std::string log = text(given, "logMessage"); !log.empty()) wanted["log"] = log_expression(log);
}

void check_count(const Json& wanted) {
  if (wanted.size() > kMostBreakpoints)
    fail(Code::kBadInput, "setBreakpoints", "these are too many breakpoints for one file",
         {.expected = "at most " + std::to_string(kMostBreakpoints)});
}

}  // namespace

Json DapAdapter::set_breakpoints(const Json& arguments, CallControl& control) {
  const Json source = field(arguments, "source");
  std::string path = text(source, "path");
  if (const int64_t number = whole(source, "sourceReference"); path.empty() && number >= 1) {
    const std::lock_guard lock(state_mutex_);
    if (number <= static_cast<int64_t>(shown_sources_.size())) path = shown_sources_[static_cast<size_t>(number - 1)];
  }
  if (path.empty()) fail(Code::kBadInput, "setBreakpoints", "the source has no path");
  Json given = dap::list(arguments, "breakpoints");
  if (given.empty())
    for (const Json& line : dap::list(arguments, "lines")) given.push_back({{"line", line}});
  check_count(given);
  std::vector<Json> wanted;
  for (const Json& one : given) {
    const int64_t line = whole(one, "line", -1);
    if (line < first_line_) fail(Code::kBadInput, "setBreakpoints", "a breakpoint has no line");
    Json breakpoint{{"where", path + ":" + std::to_string(line - first_line_ + 1)}};
    add_conditions(breakpoint, one);
    wanted.push_back(std::move(breakpoint));
  }
  return replace_breakpoints(path, wanted, control);
}

Json DapAdapter::set_function_breakpoints(const Json& arguments, CallControl& control) {
  const Json given = dap::list(arguments, "breakpoints");
  check_count(given);
  std::vector<Json> wanted;
  for (const Json& one : given) {
    const std::string name = text(one, "name");
    if (name.empty()) fail(Code::kBadInput, "setFunctionBreakpoints", "a breakpoint has no name");
    Json breakpoint{{"where", name}};
    add_conditions(breakpoint, one);
    wanted.push_back(std::move(breakpoint));
  }
  return replace_breakpoints("", wanted, control);
}

// Those that stay as they were keep their numbers, and how often they were hit.
Json DapAdapter::replace_breakpoints(const std::string& key, const std::vector<Json>& wanted, CallControl& control) {
  const std::lock_guard ordered(order_);
  std::vector<Set> before = std::exchange(breakpoints_[key], {});
  std::vector<Set>& now = breakpoints_[key];
  for (const Json& arguments : wanted) {
    const auto same = std::find_if(before.begin(), before.end(),
                                   [&](const Set& one) { return one.number >= 0 && one.arguments == arguments; });
    if (same != before.end()) {
      now.push_back(std::move(*same));
      before.erase(same);
    } else {
      now.push_back({next_breakpoint_++, -1, arguments, nullptr});
    }
  }
  for (const Set& old : before)
    if (old.number >= 0) try {
        call("debug remove", {{"which", std::to_string(old.number)}}, control);
      } catch (const Error&) {  // somebody else has removed it, or it was to stop once
      }
  Json shown = Json::array();
  for (Set& one : now) {
    if (one.number < 0) set_one(one, control);
    shown.push_back(shown_breakpoint(one));
  }
  return {{"breakpoints", std::move(shown)}};
}

void DapAdapter::set_one(Set& one, CallControl& control) {
  if (no_debug_) {
    one.last = {{"message", "the program runs without the debugger"}};
    return;
  }
  try {
    one.last = field(call("debug break", one.arguments, control), "breakpoint");
    one.number = whole(one.last, "id", -1);
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;
    one.last = {{"message", error.what()}};
  }
}

Json DapAdapter::shown_breakpoint(const Set& one) {
  const std::string state = text(one.last, "state");
  // A line that holds code is known to be right before the program has come to load it; a function's name is not.
  const bool found = state == "pending" && text(one.last, "kind") == "line" && whole(one.last, "line") > 0;
  Json shown{{"id", one.id}, {"verified", state == "verified" || found}};
  if (const std::string message = text(one.last, "message"); !message.empty() && !message.starts_with("waits"))
    shown["message"] = message;
  if (state == "pending" && !found) shown["reason"] = "pending";
  if (state == "invalid" || one.number < 0) shown["reason"] = "failed";
  Json place = one.last;
  if (const Json places = dap::list(one.last, "places"); !places.empty() && whole(place, "line") < 1) place = places[0];
  if (const int64_t line = whole(place, "line"); line > 0) shown["line"] = line - 1 + first_line_;
  if (const std::string file = text(place, "file"); file.starts_with('/')) shown["source"] = source_of(file);
  return shown;
}

void DapAdapter::set_again(CallControl& control) {
  const std::lock_guard ordered(order_);
  for (auto& [key, all] : breakpoints_)
    for (Set& one : all) {
      set_one(one, control);
      event("breakpoint", {{"reason", "changed"}, {"breakpoint", shown_breakpoint(one)}});
    }
}

void DapAdapter::remove_all(CallControl& control) {
  const std::lock_guard ordered(order_);
  for (auto& [key, all] : breakpoints_)
    for (Set& one : all) {
      if (one.number >= 0) try {
          call("debug remove", {{"which", std::to_string(one.number)}}, control);
        } catch (const Error&) {
        }
      one.number = -1;
    }
  // Of a program that has ended nothing can be removed; what it would be restarted with can be forgotten.
  if (ended_) try {
      call("debug clear", Json::object(), control);
    } catch (const Error&) {
    }
}

void DapAdapter::breakpoint_changed(const Json& told) {
  const Json breakpoint = field(told, "breakpoint");
  const int64_t number = whole(breakpoint, "id", -1);
  for (auto& [key, all] : breakpoints_)
    for (Set& one : all)
      if (one.number == number && number >= 0) {
        one.last = breakpoint;
        event("breakpoint", {{"reason", "changed"}, {"breakpoint", shown_breakpoint(one)}});
      }
}

Json DapAdapter::client_numbers(const Json& numbers) {
  Json found = Json::array();
  if (!numbers.is_array()) return found;
  for (const auto& [key, all] : breakpoints_)
    for (const Set& one : all)
      if (one.number >= 0 && std::find(numbers.begin(), numbers.end(), Json(one.number)) != numbers.end())
        found.push_back(one.id);
  return found;
}

Json DapAdapter::set_exception_breakpoints(const Json& arguments, CallControl& control) {
  const Json filters = dap::list(arguments, "filters");
  bool uncaught = false;
  Json shown = Json::array();
  for (const Json& filter : filters) {
    const bool known = filter == Json("uncaught");
    uncaught = uncaught || known;
    shown.push_back({{"verified", known}});
    if (!known) shown.back()["message"] = "only uncaught exceptions stop";
  }
  if (!no_debug_) call("debug exceptions", {{"stop", uncaught ? "uncaught" : "never"}}, control);
  return {{"breakpoints", std::move(shown)}};
}

Json DapAdapter::breakpoint_locations(const Json& arguments, CallControl& control) {
  const int64_t first = whole(arguments, "line", 1) - first_line_ + 1;
  const int64_t last = whole(arguments, "endLine", first + first_line_ - 1) - first_line_ + 1;
  const std::string path = text(field(arguments, "source"), "path");
  if (path.empty() || first < 1 || last < first) fail(Code::kBadInput, "breakpointLocations", "no lines are given");
  Json found = Json::array();
  for (int64_t from = first; from <= std::min(last, first + 10000); from += 401) {
    const Json part = call("debug source", {{"file", path}, {"line", from + 200}, {"around", 200}}, control);
    for (const Json& line : dap::list(part, "executable"))
      if (line.is_number_integer() && line.get<int64_t>() >= from && line.get<int64_t>() <= std::min(last, from + 400))
        found.push_back({{"line", line.get<int64_t>() - 1 + first_line_}});
  }
  return {{"breakpoints", std::move(found)}};
}

}  // namespace lockstep
