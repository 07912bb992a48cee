// initialize, launch, attach, configurationDone, restart, terminate, disconnect.
#include <algorithm>

#include "base/error.h"
#include "base/thread.h"
#include "dap/adapter.h"
#include "dap/fields.h"

namespace lockstep {
namespace {

using dap::field;
using dap::flag;
using dap::text;
using dap::whole;

// "args" and "python" are a list of texts, or one text.
Json words_from(const Json& value, const char* name) {
  if (value.is_null()) return Json::array();
  if (value.is_string()) return Json::array({value});
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), [](const Json& word) { return word.is_string(); }))
    fail(Code::kBadInput, "launch", std::string(name) + " cannot be used", {.expected = "a list of texts"});
  return value;
}

Json variables_from(const Json& value) {
  Json out = Json::object();
  if (value.is_null()) return out;
  if (!value.is_object()) fail(Code::kBadInput, "launch", "env cannot be used", {.expected = "an object of texts"});
  for (const auto& [name, one] : value.items())
    if (one.is_string())
      out[name] = one;
    else if (one.is_number() || one.is_boolean())
      out[name] = one.dump();
    else if (!one.is_null())
      fail(Code::kBadInput, "launch", "env holds no text for " + name);
  return out;
}

// The arguments of `debug start` that a launch configuration means.
Json start_arguments(const Json& given, bool no_debug) {
  Json start = Json::object();
  const std::string program = text(given, "program"), module = text(given, "module");
  if (program.empty() == module.empty())
    fail(Code::kBadInput, "launch", "what to start is missing", {.expected = "program or module"});
  if (!program.empty()) start["script"] = program;
  if (!module.empty()) start["module"] = module;
  start["arguments"] = words_from(field(given, "args"), "args");
  const Json python = words_from(field(given, "python"), "python");
  if (python.size() > 1)
    fail(Code::kUnsupported, "launch", "python takes no arguments of its own", {.expected = "the path of a Python"});
  if (!python.empty()) start["python"] = python[0];
  for (const auto& [from, to] : {std::pair{"cwd", "cwd"}, {"stdin", "stdin"}, {"sessionName", "name"}})
    if (const std::string value = text(given, from); !value.empty()) start[to] = value;
  if (const Json environment = variables_from(field(given, "env")); !environment.empty()) start["env"] = environment;
  start["check_bounds"] = flag(given, "checkBounds");
  start["count_calls"] = flag(given, "countCalls");
  start["run"] = no_debug;
  if (no_debug) start["on_exception"] = "end";
  return start;
}

}  // namespace

Json DapAdapter::initialize(const Json& arguments, CallControl&) {
  first_line_ = flag(arguments, "linesStartAt1", true) ? 1 : 0;
  first_column_ = flag(arguments, "columnsStartAt1", true) ? 1 : 0;
  if (const std::string format = text(arguments, "pathFormat", "path"); format != "path")
    fail(Code::kUnsupported, "initialize", "places are given by path", {.expected = "pathFormat path", .got = format});
  return dap_capabilities();
}

// The program stands before its first line until the client has said where to stop.
Json DapAdapter::launch(const Json& arguments, CallControl& control) {
  if (!session().empty()) fail(Code::kConflict, "launch", "a program is debugged already", {.hint = "restart"});
  const bool no_debug = flag(arguments, "noDebug");
  const Json status = service_.call(known_operation("debug start"), start_arguments(arguments, no_debug), control);
  {
    const std::lock_guard lock(state_mutex_);
    launched_ = true;
    no_debug_ = no_debug;
    stop_on_entry_ = flag(arguments, "stopOnEntry") && !no_debug;
    only_own_code_ = flag(arguments, "justMyCode", true);
    launch_arguments_ = arguments;
  }
  begin(status, 0);
  return nullptr;
}

std::string DapAdapter::attached_session(const Json& arguments, CallControl& control) {
  if (const std::string named = text(arguments, "session"); !named.empty()) return named;
  const Json process = field(arguments, "processId");
  if (process.is_null()) return {};
  const std::string wanted = process.is_string() ? process.get<std::string>() : process.dump();
  const Json all = service_.call(known_operation("debug sessions"), {{"limit", 1000}}, control);
  for (const Json& one : dap::list(all, "sessions"))
    if (field(one, "pid").dump() == wanted && text(one, "state") != "ended") return text(one, "id");
  fail(Code::kNotFound, "attach", "process " + wanted + " is in no session",
       {.hint = "lockstep debug start SCRIPT, or a launch configuration: a program is debugged from its start on"});
}

Json DapAdapter::attach(const Json& arguments, CallControl& control) {
  if (!session().empty()) fail(Code::kConflict, "attach", "a program is debugged already");
  Json asked = Json::object();
  if (const std::string named = attached_session(arguments, control); !named.empty()) asked["session"] = named;
  const Json status = service_.call(known_operation("debug status"), asked, control);
  if (const std::string state = text(status, "state"); state == "ended" || state == "lost" || state == "detached")
    fail(Code::kConflict, "attach", "the session cannot be attached to", {.got = state, .hint = "debug restart"});
  {
    const std::lock_guard lock(state_mutex_);
    only_own_code_ = flag(arguments, "justMyCode", true);
  }
  begin(status, whole(status, "events"));
  return nullptr;
}

void DapAdapter::begin(const Json& status, int64_t after_event) {
  const std::string id = text(status, "id");
  int64_t epoch = 0;
  {
    const std::lock_guard ordered(order_);  // nothing of an earlier session is being told
    const std::lock_guard lock(state_mutex_);
    session_ = id;
    ended_ = false;
    epoch = ++epoch_;
    own_resumed_.clear();
    stops_.clear();
    known_threads_.clear();
    modules_told_ = 0;
    modules_seen_ = -1;
  }
  references_.forget_all();
  threads_.forget_all();
  followers_.push_back(start_thread("dap", [this, id, after_event, epoch] { follow(id, after_event, epoch); }));
  const int64_t process = whole(status, "pid", -1);
  const Json about{{"name", text(status, "program")},
                   {"systemProcessId", process},
                   {"isLocalProcess", true},
                   {"startMethod", launched_ ? "launch" : "attach"},
                   {"pointerSize", static_cast<int>(sizeof(void*) * 8)}};
  then([this, about] {
    event("process", about);
    event("initialized");
  });
}

Json DapAdapter::configuration_done(const Json&, CallControl&) {
  if (session().empty()) fail(Code::kConflict, "configurationDone", "no program is debugged yet");
  configured_ = true;
  then([this] {
    CallControl control;
    const std::lock_guard ordered(order_);
    if (!launched_ || stop_on_entry_) return tell_standing_threads(control);
    if (no_debug_) return;
    if (text(call("debug status", Json::object(), control), "state") == "stopped")
      call("debug continue", {{"max_wait", 0}}, control);
  });
  return nullptr;
}

void DapAdapter::tell_standing_threads(CallControl& control) {
  const Json status = call("debug status", Json::object(), control);
  if (const Json stop = field(status, "stop"); stop.is_object()) stopped_event(stop);
  if (whole(status, "stopped_threads", 1) < 2) return;
  const int64_t current = whole(field(field(status, "stop"), "thread"), "id");
  for (const Json& thread : dap::list(call("debug threads", Json::object(), control), "threads"))
    if (text(thread, "state") == "stopped" && whole(thread, "id") != current)
      stopped_event({{"reason", "pause"}, {"thread", thread}, {"description", "it stands already"}});
}

// For a client that takes the new program for the old one gone on: none of its threads stands any more.
void DapAdapter::tell_threads_gone() {
  const std::lock_guard ordered(order_);
  bool stood = false;
  {
    const std::lock_guard lock(state_mutex_);
    stood = !stops_.empty();
  }
  for (const int64_t id : known_threads_) {
    const int64_t number = threads_.number_of(id);
    if (std::exchange(stood, false)) event("continued", {{"threadId", number}, {"allThreadsContinued", true}});
    event("thread", {{"reason", "exited"}, {"threadId", number}});
  }
}

// The client's breakpoints are set anew, so that they keep their numbers there whatever these are here.
Json DapAdapter::restart(const Json& arguments, CallControl& control) {
  const std::string before = session();
  if (before.empty()) fail(Code::kConflict, "restart", "no program is debugged yet");
  {
    const std::lock_guard lock(state_mutex_);
    ++epoch_;  // what the old one still says is not for the client
  }
  remove_all(control);
  const Json newer = field(arguments, "arguments");
  Json status;
  if (launched_ && newer.is_object() && newer != launch_arguments_ &&
      (newer.contains("program") || newer.contains("module"))) {  // an edited configuration
    service_.call(known_operation("debug terminate"), {{"session", before}}, control);
    status = service_.call(known_operation("debug start"), start_arguments(newer, no_debug_), control);
    launch_arguments_ = newer;
    stop_on_entry_ = flag(newer, "stopOnEntry") && !no_debug_;
    only_own_code_ = flag(newer, "justMyCode", true);
  } else {
    status = service_.call(known_operation("debug restart"), {{"session", before}}, control);
  }
  tell_threads_gone();
  begin(status, 0);
  after_.clear();  // it is no new debug session for the client: nothing is configured again
  set_again(control);
  then([this] {
    CallControl later;
    const std::lock_guard ordered(order_);
    if (stop_on_entry_) return tell_standing_threads(later);
    if (text(call("debug status", Json::object(), later), "state") == "stopped")
      call("debug continue", {{"max_wait", 0}}, later);
  });
  return nullptr;
}

Json DapAdapter::terminate(const Json&, CallControl&) {
  CallControl control;
  call("debug terminate", Json::object(), control);
  return nullptr;
}

// A program that was attached to goes on as if nobody had looked.
void DapAdapter::let_go(bool terminate, bool suspend, CallControl& control) {
  if (session().empty() || ended_) return;
  if (terminate) {
    call("debug terminate", Json::object(), control);
    return;
  }
  remove_all(control);
  if (!suspend && text(call("debug status", Json::object(), control), "state") == "stopped")
    call("debug continue", {{"max_wait", 0}}, control);
}

Json DapAdapter::disconnect(const Json& arguments, CallControl&) {
  CallControl control;
  try {
    let_go(flag(arguments, "terminateDebuggee", launched_), flag(arguments, "suspendDebuggee"), control);
  } catch (const Error&) {  // it has ended meanwhile, or the service has: there is nothing left to let go of
  }
  return nullptr;
}

}  // namespace lockstep
