// What happens to the program, as the client's events.
#include <chrono>

#include "base/error.h"
#include "dap/adapter.h"
#include "dap/fields.h"

namespace lockstep {
namespace {

using dap::field;
using dap::flag;
using dap::text;
using dap::whole;

constexpr int kMostReturns = 5;  // of a service that was lost, before it is given up

const char* reason_of(const std::string& reason) {
  if (reason == "data") return "data breakpoint";
  if (reason == "checkpoint" || reason == "condition_error") return "breakpoint";
  if (reason == "bounds") return "exception";
  for (const char* same : {"entry", "breakpoint", "step", "pause", "exception"})
    if (reason == same) return same;
  return "pause";
}

}  // namespace

void DapAdapter::follow(const std::string& session, int64_t after, int64_t epoch) {
  const auto over = [this, epoch] {
    const std::lock_guard lock(state_mutex_);
    return epoch_ != epoch;
  };
  int64_t last = after;
  bool ended = false;
  for (int chance = 0; chance < kMostReturns && !over() && !ended; ++chance) {
    try {
      service_.follow(
          session, last,
          [&](const Json& told) {
            const int64_t number = whole(told, "number");
            const std::lock_guard ordered(order_);
            if (over()) return false;
            if (number > last + 1)
              event("output", {{"category", "console"},
                               {"output", "lockstep: " + std::to_string(number - last - 1) +
                                              " lines came faster than they could be shown; all are in the session's "
                                              "output.log\n"}});
            last = number;
            chance = 0;
            ended = text(told, "event") == "ended";
            translate(told);
            return !ended;
          },
          over);
    } catch (const std::exception&) {  // the service is gone; the next look for it starts another
    }
  }
  if (over() || ended) return;
  event("output", {{"category", "important"}, {"output", "lockstep: the service that holds the session is gone\n"}});
  event("terminated");
}

void DapAdapter::translate(const Json& told) {
  const std::string kind = text(told, "event");
  if (kind == "stopped") {
    stopped(told);
  } else if (kind == "continued") {
    const Json thread = field(told, "thread");
    const int64_t id = thread.is_object() ? whole(thread, "id") : whole(told, "thread");
    bool known = false;
    {
      const std::lock_guard lock(state_mutex_);
      known = own_resumed_.erase(id) > 0;
      stops_.erase(id);
    }
    references_.forget(id);
    if (!known && known_threads_.contains(id))
      event("continued", {{"threadId", threads_.number_of(id)}, {"allThreadsContinued", false}});
  } else if (kind == "output") {
    const std::string category = text(told, "category");
    Json body{{"category", category == "program"  ? "stdout"
                           : category == "bounds" ? "stderr"
                                                  : "console"},
              {"output", text(told, "text") + "\n"}};
    if (const Json place = field(told, "location"); place.is_object() && whole(place, "line") > 0) {
      body["source"] = source_of(text(place, "file"));
      body["line"] = whole(place, "line") - 1 + first_line_;
    }
    event("output", std::move(body));
  } else if (kind == "breakpoint") {
    breakpoint_changed(told);
  } else if (kind == "ended") {
    ended(told);
  }
}

void DapAdapter::stopped(const Json& told) {
  const int64_t id = whole(field(told, "thread"), "id");
  {
    const std::lock_guard lock(state_mutex_);
    stops_[id] = told;
  }
  // Before its first line a program that was launched stands for us, not for the client.
  if (text(told, "reason") == "entry" && launched_) return;
  if (!configured_) return;  // told when the client is ready
  stopped_event(told);
  if (const int64_t loaded = whole(told, "modules", -1); loaded >= 0 && loaded != modules_seen_) {
    modules_seen_ = loaded;
    try {
      tell_loaded();
    } catch (const Error&) {  // it has gone on, or ended: the next stop tells
      modules_seen_ = -1;
    }
  }
}

// Before its first stop: a client takes a thread that starts for one that runs.
void DapAdapter::tell_thread(int64_t id) {
  if (known_threads_.insert(id).second) event("thread", {{"reason", "started"}, {"threadId", threads_.number_of(id)}});
}

void DapAdapter::stopped_event(const Json& stop) {
  const std::string reason = text(stop, "reason");
  const Json thread = field(stop, "thread");
  const int64_t id = thread.is_object() ? whole(thread, "id") : whole(stop, "thread");
  {
    const std::lock_guard lock(state_mutex_);
    stops_[id] = stop;
    own_resumed_.erase(id);
  }
  tell_thread(id);
  Json body{{"reason", reason_of(reason)},
            {"threadId", threads_.number_of(id)},
            {"allThreadsStopped", false},
            {"preserveFocusHint", false}};
  if (const std::string description = text(stop, "description"); !description.empty()) {
    body["description"] = reason == "exception" ? "Uncaught exception" : description;
    body["text"] = description;
  }
  if (Json hit = client_numbers(field(stop, "breakpoints")); !hit.empty()) body["hitBreakpointIds"] = std::move(hit);
  event("stopped", std::move(body));
}

void DapAdapter::ended(const Json& told) {
  {
    const std::lock_guard lock(state_mutex_);
    ended_ = true;
    stops_.clear();
  }
  references_.forget_all();
  const Json end = field(told, "end");
  const std::string how = text(end, "how");
  if (how != "finished" && how != "sys_exit" && how != "terminated")
    event("output", {{"category", "important"}, {"output", "lockstep: " + text(end, "description") + "\n"}});
  event("exited", {{"exitCode", whole(end, "exit_code", 1)}});
  event("terminated");
}

}  // namespace lockstep
