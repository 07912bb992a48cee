// continue, next, stepIn, stepOut, pause.
#include "base/error.h"
#include "dap/adapter.h"
#include "dap/fields.h"

namespace lockstep {

using dap::flag;
using dap::whole;

// The answer goes out before the stop that it leads to: a client takes what comes after it for what happened next.
Json DapAdapter::resume(const char* operation, const Json& arguments, Json wanted, CallControl& control) {
  const std::lock_guard ordered(order_);
  const int64_t thread = threads_.thread_of(whole(arguments, "threadId"));
  const bool all = std::string_view(operation) == "debug continue" && !flag(arguments, "singleThread");
  if (thread != 0 && !all) wanted["thread"] = thread;
  wanted["max_wait"] = 0;
  std::set<int64_t> going;
  {
    const std::lock_guard lock(state_mutex_);
    for (const auto& [id, stop] : stops_)
      if (all || id == thread) going.insert(id);
    own_resumed_.insert(going.begin(), going.end());
  }
  try {
    call(operation, wanted, control);
  } catch (const Error&) {
    const std::lock_guard lock(state_mutex_);
    for (const int64_t id : going) own_resumed_.erase(id);
    throw;
  }
  for (const int64_t id : going) references_.forget(id);
  respond(request_, all ? Json{{"allThreadsContinued", true}} : Json(nullptr));
  return true;
}

Json DapAdapter::go_on(const Json& arguments, CallControl& control) {
  return resume("debug continue", arguments, Json::object(), control);
}

Json DapAdapter::next(const Json& arguments, CallControl& control) {
  return resume("debug next", arguments, Json::object(), control);
}

Json DapAdapter::step_in(const Json& arguments, CallControl& control) {
  return resume("debug step", arguments, {{"library", !only_own_code_}}, control);
}

Json DapAdapter::step_out(const Json& arguments, CallControl& control) {
  return resume("debug finish", arguments, Json::object(), control);
}

Json DapAdapter::pause(const Json& arguments, CallControl& control) {
  Json wanted{{"max_wait", 0}};
  if (const int64_t thread = threads_.thread_of(whole(arguments, "threadId")); thread != 0) wanted["thread"] = thread;
  call("debug pause", wanted, control);
  return nullptr;
}

}  // namespace lockstep
