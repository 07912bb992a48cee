// debug continue, wait, pause, next, step, finish, until.
#include "base/error.h"
#include "service/groups.h"
#include "service/service.h"

namespace lockstep {
namespace {

using enum ArgumentType;

constexpr const char* kStopFields =
    "session:string id:string state:string stop?:object end?:object waited_secs?:number hint?:string";

// What happened since `stops`, or that it still runs.
Json outcome(Session& session, int64_t stops, double max_wait, CallControl& control) {
  const bool settled = session.wait_for_stop(
      stops, std::min(max_wait, control.longest_wait_secs), [&] { return control.cancelled(); },
      [&](double secs) { control.progress(secs, "the program is running"); });
  if (!settled && control.cancelled()) fail(Code::kCancelled, "wait", "cancelled; the program runs on");
  Json whole = session.status(), out = Json::object();
  for (const char* name : {"session", "id", "state", "stop", "end", "stopped_threads", "output", "hint"})
    if (whole.contains(name)) out[name] = whole[name];
  if (!settled) out["hint"] = "still running: debug wait, debug pause, or debug log";
  return out;
}

template <typename Fill>
Json resume(const char* operation, Service& service, const Json& arguments, CallControl& control, Fill fill) {
  const auto session = service.sessions().find(text_argument(arguments, "session"));
  const int64_t stops = session->stops();
  Json wanted = Json::object();
  if (arguments.contains("thread")) wanted["thread"] = arguments["thread"];
  fill(wanted);
  session->ask(operation, wanted, 15, [&] { return control.cancelled(); });
  return outcome(*session, stops, arguments["max_wait"].get<double>(), control);
}

Json go_on(Service& service, const Json& arguments, CallControl& control) {
  return resume("continue", service, arguments, control, [](Json&) {});
}

void copy(const Json& arguments, Json& wanted, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (arguments.contains(name)) wanted[name] = arguments[name];
}

Json next(Service& service, const Json& arguments, CallControl& control) {
  return resume("next", service, arguments, control, [&](Json& wanted) { copy(arguments, wanted, {"count"}); });
}

Json step(Service& service, const Json& arguments, CallControl& control) {
  return resume("step", service, arguments, control, [&](Json& wanted) {
    copy(arguments, wanted, {"count", "library"});
  });
}

Json finish(Service& service, const Json& arguments, CallControl& control) {
  return resume("finish", service, arguments, control, [](Json&) {});
}

Json until(Service& service, const Json& arguments, CallControl& control) {
  return resume("until", service, arguments, control, [&](Json& wanted) { copy(arguments, wanted, {"line"}); });
}

Json wait(Service& service, const Json& arguments, CallControl& control) {
  return outcome(*service.sessions().find(text_argument(arguments, "session")), -1, arguments["max_wait"].get<double>(),
                 control);
}

Json pause(Service& service, const Json& arguments, CallControl& control) {
  const auto session = service.sessions().find(text_argument(arguments, "session"));
  if (session->state() == "stopped" && !arguments.contains("thread")) return outcome(*session, -1, 0, control);
  const int64_t stops = session->stops();
  Json wanted = Json::object();
  copy(arguments, wanted, {"thread"});
  session->ask("pause", wanted, 15, [&] { return control.cancelled(); });
  Json out = outcome(*session, stops, arguments["max_wait"].get<double>(), control);
  if (out["state"] == "running") out["hint"] = "it sits in C code and stops when that returns: debug wait";
  return out;
}

}  // namespace

std::vector<Operation> running_operations() {
  const Argument session = session_argument();
  const Argument thread{
      .name = "thread", .type = kInteger, .help = "id of the thread (default: the current one; continue: all)"};
  const Argument count{
      .name = "count", .type = kInteger, .help = "number of times", .standard = 1, .least = 1, .most = 1e6};
  return {
      {.name = "debug continue",
       .help = "continue to the next stop",
       .arguments = {session, thread, max_wait_argument(30)},
       .result = kStopFields,
       .examples = {"lockstep debug continue", "lockstep debug continue --max-wait 600"},
       .call = &go_on},
      {.name = "debug wait",
       .help = "wait until the program stops or ends",
       .arguments = {session, max_wait_argument(30)},
       .result = kStopFields,
       .reads = true,
       .examples = {"lockstep debug wait --max-wait 120"},
       .call = &wait},
      {.name = "debug pause",
       .help = "pause a running program",
       .arguments = {session, thread, max_wait_argument(10)},
       .result = kStopFields,
       .examples = {"lockstep debug pause"},
       .call = &pause},
      {.name = "debug next",
       .help = "run to the next line of this function, over calls",
       .arguments = {session, count, thread, max_wait_argument(30)},
       .result = kStopFields,
       .examples = {"lockstep debug next", "lockstep debug next --count 3"},
       .call = &next},
      {.name = "debug step",
       .help = "run to the next line, into calls",
       .arguments = {session,
                     count,
                     {.name = "library",
                      .type = kBool,
                      .help = "into library code too",
                      .standard = true,
                      .help_off = "skip library code"},
                     thread,
                     max_wait_argument(30)},
       .result = kStopFields,
       .examples = {"lockstep debug step"},
       .call = &step},
      {.name = "debug finish",
       .help = "run until this function returns, and show the value",
       .arguments = {session, thread, max_wait_argument(30)},
       .result = kStopFields,
       .examples = {"lockstep debug finish"},
       .call = &finish},
      {.name = "debug until",
       .help = "run to a later line of this function, such as past a loop",
       .arguments = {{.name = "line",
                      .type = kInteger,
                      .help = "the line (default: any after this one)",
                      .positional = true,
                      .least = 1,
                      .most = 1e9},
                     session,
                     thread,
                     max_wait_argument(30)},
       .result = kStopFields,
       .examples = {"lockstep debug until 120"},
       .call = &until},
  };
}

}  // namespace lockstep
