// debug start, restart, terminate, status, sessions, log, trace show, trace export.
#include <fmt/format.h>

#include "base/error.h"
#include "service/groups.h"
#include "service/service.h"

namespace lockstep {
namespace {

using enum ArgumentType;

constexpr double kStartSecs = 60;  // that a program may take to its first line

constexpr const char* kStatusFields =
    "session:string id:string state:string stop?:object end?:object program?:string arguments?:strings cwd?:string "
    "pid?:integer python?:string engine?:string native?:boolean output?:string trace?:string stops?:integer "
    "breakpoints?:integer output_lines?:integer secs?:number hint?:string";

Environment environment_from(const Json& arguments) {
  Environment variables;
  if (arguments.contains("whole_environment"))
    for (const auto& [name, value] : arguments["whole_environment"].items()) variables[name] = value.get<std::string>();
  else
    variables = current_environment();
  if (arguments.contains("env"))
    for (const auto& [name, value] : arguments["env"].items()) {
      if (name.empty() || name.find('=') != std::string::npos)
        fail(Code::kBadInput, "start", "env has a name that no variable can have", {.got = "'" + name + "'"});
      variables[name] = value.get<std::string>();
    }
  return variables;
}

void check_program(const SessionRequest& request) {
  if (request.script.empty() == request.module.empty())
    fail(Code::kBadInput, "start", "what is to be started is not clear", {.expected = "a script, or a module (-m)"});
  if (request.script.empty()) return;
  const fs::path script = request.cwd / request.script;
  std::error_code error;
  if (!fs::exists(script, error))
    fail(Code::kNotFound, "start", "there is no file " + script.string(), {.hint = "-m for a module"});
}

// What stands in the way of an answer: it died before its first line.
[[noreturn]] void refuse_unstarted(const Session& session) {
  fail(Code::kIo, "start",
       session.end().value("description", std::string("the program did not start")) +
           last_output(session.identity().folder / "output.log", 5),
       {.hint = "--python with a Python of 3.10 to 3.14"});
}

// A program that stops before its first line is waited for; one that runs only until it does, unless the caller says
// how long to wait for its first stop or its end.
Json started(Session& session, const Json& arguments, CallControl& control) {
  const auto cancelled = [&] { return control.cancelled(); };
  const bool told = arguments.contains("max_wait");
  const double most = std::min(told ? arguments["max_wait"].get<double>() : kStartSecs, control.longest_wait_secs);
  if (session.request().run) session.wait_for_connection(std::min(kStartSecs, control.longest_wait_secs), cancelled);
  if (!session.request().run || told) session.wait_for_stop(0, most, cancelled);
  if (!session.live() && !session.status().contains("engine")) refuse_unstarted(session);
  Json status = session.status();
  status["hint"] = fmt::format("output goes to {}{}", status["output"].get<std::string>(),
                               status["state"] == "ended"     ? ""
                               : status["state"] == "running" ? "; it is running: debug wait, debug pause, debug log"
                                                              : "; next: debug break WHERE, debug continue");
  return status;
}

Json start(Service& service, const Json& arguments, CallControl& control) {
  SessionRequest request;
  request.home = service.home();
  request.script = text_argument(arguments, "script");
  request.module = text_argument(arguments, "module");
  if (arguments.contains("arguments")) request.arguments = arguments["arguments"].get<std::vector<std::string>>();
  request.name = text_argument(arguments, "name");
  request.python = text_argument(arguments, "python");
  request.environment = environment_from(arguments);
  request.cwd = arguments.contains("cwd") ? fs::path(text_argument(arguments, "cwd")) : fs::current_path();
  request.input = text_argument(arguments, "stdin");
  request.run = arguments["run"].get<bool>();
  request.check_bounds = arguments["check_bounds"].get<bool>();
  request.count_calls = arguments["count_calls"].get<bool>();
  request.on_disconnect = text_argument(arguments, "on_disconnect");
  request.on_exception = text_argument(arguments, "on_exception");
  if (arguments.contains("break"))
    for (const Json& where : arguments["break"]) request.breakpoints.push_back({{"where", where}});
  check_program(request);
  const auto session = service.sessions().start(std::move(request));
  int64_t id = 0;  // the program's side numbers them in this order
  for (const Json& breakpoint : session->request().breakpoints) session->remember_breakpoint(++id, breakpoint);
  return started(*session, arguments, control);
}

Json restart(Service& service, const Json& arguments, CallControl& control) {
  const auto session = service.sessions().restart(text_argument(arguments, "session"), environment_from(arguments),
                                                  arguments["count_calls"].get<bool>());
  int64_t id = 0;
  for (const Json& breakpoint : session->request().breakpoints) session->remember_breakpoint(++id, breakpoint);
  return started(*session, arguments, control);
}

Json terminate(Service& service, const Json& arguments, CallControl&) {
  const std::string spec = text_argument(arguments, "session");
  const auto session = service.sessions().find(spec);
  session->terminate(arguments["force"].get<bool>());
  Json status = session->status();
  if (arguments["forget"].get<bool>()) service.sessions().forget(session->identity().id);
  return status;
}

Json status(Service& service, const Json& arguments, CallControl&) {
  return service.sessions().record_of(text_argument(arguments, "session"));
}

Json sessions(Service& service, const Json& arguments, CallControl&) {
  size_t total = 0;
  Json all = service.sessions().list(static_cast<size_t>(arguments["limit"].get<int64_t>()), total);
  return {{"sessions", std::move(all)}, {"total", total}, {"live", service.sessions().live()}};
}

// Nobody will write on: what stands after the last line's end is a line too.
void end_last_line(OutputPart& part, int64_t from, int64_t most) {
  ++part.total;
  if (from == 0 && !part.lines.empty() && static_cast<int64_t>(part.lines.size()) >= most) {
    part.lines.erase(part.lines.begin());
    ++part.first;
  }
  if (static_cast<int64_t>(part.lines.size()) < most && part.total >= from)
    part.lines.push_back(std::move(part.unfinished));
  part.unfinished.clear();
}

Json log(Service& service, const Json& arguments, CallControl& control) {
  const std::string spec = text_argument(arguments, "session");
  const int64_t from = arguments["from"].get<int64_t>(), most = arguments["lines"].get<int64_t>();
  const fs::path folder = service.sessions().folder_of(spec);
  const double wait = std::min(arguments["max_wait"].get<double>(), control.longest_wait_secs);
  if (wait > 0 && from > 0)
    if (const auto session = service.sessions().known(folder.filename().string()))
      session->wait_for_output(from, wait, [&] { return control.cancelled(); });
  const Json record = service.sessions().record_of(folder.filename().string());  // first: its end ends the last line
  OutputPart part = read_output(folder / "output.log", from, most);
  if (record.value("state", Json("")) == Json("ended") && !part.unfinished.empty()) end_last_line(part, from, most);
  Json out{{"session", record.value("session", Json(""))},
           {"state", record.value("state", Json(""))},
           {"lines", part.lines},
           {"first", part.first},
           {"next", part.first + static_cast<int64_t>(part.lines.size())},
           {"total", part.total},
           {"output", (folder / "output.log").string()}};
  if (!part.unfinished.empty()) out["unfinished"] = part.unfinished;
  return out;
}

Json trace_show(Service& service, const Json& arguments, CallControl&) {
  const fs::path file = service.sessions().folder_of(text_argument(arguments, "session")) / "trace.jsonl";
  const int64_t after = arguments.contains("after") ? arguments["after"].get<int64_t>() : 0;
  const int64_t most = arguments["limit"].get<int64_t>();
  TracePart part =
      read_trace(file, after, arguments.contains("after") ? most : -most, text_argument(arguments, "kind"));
  return {{"lines", std::move(part.lines)}, {"total", part.total}, {"skipped", part.skipped}, {"trace", file.string()}};
}

Json trace_export(Service& service, const Json& arguments, CallControl&) {
  const fs::path folder = service.sessions().folder_of(text_argument(arguments, "session"));
  const Json document = trace_document(folder / "trace.jsonl");
  const fs::path to = arguments.contains("to") ? fs::path(text_argument(arguments, "to")) : folder / "trace.json";
  write_atomically(to, document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  return {{"path", to.string()},
          {"session_id", document["session_id"]},
          {"total_steps", document["total_steps"]},
          {"breakpoints", document["breakpoints"].size()},
          {"output_lines", document["output"].size()},
          {"skipped_lines", document["skipped_lines"]}};
}

}  // namespace

namespace {

Argument start_wait_argument() {
  return {.name = "max_wait",
          .type = kNumber,
          .help = "seconds to wait for its first stop (default 60); with run: for a stop or its end (default: none)",
          .least = 0,
          .most = 86400};
}

}  // namespace

std::vector<Operation> program_operations() {
  const Argument session = session_argument();
  const Argument environment{
      .name = "whole_environment",
      .type = kTextMap,
      .help = "the environment in place of the service's own; the command line sends the caller's"};
  const Argument count_calls{.name = "count_calls",
                             .type = kBool,
                             .help = "count every call, so that debug files shows how often each file ran; slower",
                             .standard = false};
  return {
      {.name = "debug start",
       .help = "start a Python program in its own process and stop before its first line",
       .arguments = {{.name = "script", .help = "the script to run", .positional = true, .path = true},
                     {.name = "arguments", .type = kTextList, .help = "its arguments", .positional = true},
                     {.name = "module", .help = "run this module instead of a script, as python -m does"},
                     {.name = "name", .help = "name of the session (default: the script's)"},
                     {.name = "python", .help = "the Python to use (default: the active environment's)"},
                     {.name = "cwd", .help = "folder to run in (default: the caller's)", .path = true},
                     {.name = "env", .type = kTextMap, .help = "additional environment variables"},
                     environment,
                     {.name = "stdin", .help = "file to read as its input (default: none)", .path = true},
                     {.name = "run", .type = kBool, .help = "do not stop before the first line", .standard = false},
                     {.name = "break",
                      .type = kTextList,
                      .help = "breakpoints to set before the first line, as in debug break"},
                     {.name = "check_bounds",
                      .type = kBool,
                      .help = "report out-of-range indexing of MLX arrays",
                      .standard = false},
                     count_calls,
                     {.name = "on_disconnect",
                      .help = "if the service is gone: wait for the next one, continue without it, or terminate",
                      .standard = "wait",
                      .choices = {"wait", "continue", "terminate"}},
                     {.name = "on_exception",
                      .help = "on an uncaught exception: stop in its frame, or let the program end",
                      .standard = "stop",
                      .choices = {"stop", "end"}},
                     start_wait_argument()},
       .result = kStatusFields,
       .examples = {"lockstep debug start generate.py --steps 4",
                    "lockstep debug start --run --break model.py:42 train.py", "lockstep debug start -m package.main"},
       .call = &start},
      {.name = "debug restart",
       .help = "end the program and start it again, with the same breakpoints",
       .arguments = {session, environment, count_calls, start_wait_argument()},
       .result = kStatusFields,
       .examples = {"lockstep debug restart", "lockstep debug restart --count-calls"},
       .call = &restart},
      {.name = "debug terminate",
       .help = "end the program and its children",
       .arguments = {session,
                     {.name = "force", .type = kBool, .help = "kill at once", .standard = false},
                     {.name = "forget", .type = kBool, .help = "also remove the session's folder", .standard = false}},
       .result = kStatusFields,
       .examples = {"lockstep debug terminate"},
       .call = &terminate},
      {.name = "debug status",
       .help = "show where the program is, or how it ended",
       .arguments = {session},
       .result = kStatusFields,
       .reads = true,
       .examples = {"lockstep debug status", "lockstep debug status --session generate --json"},
       .call = &status},
      {.name = "debug sessions",
       .help = "list all sessions, newest first",
       .arguments = {limit_argument("rows", 20, 1000)},
       .result = "sessions:objects total:integer live:integer",
       .reads = true,
       .examples = {"lockstep debug sessions"},
       .call = &sessions},
      {.name = "debug log",
       .help = "show the program's output",
       .arguments = {session,
                     {.name = "lines",
                      .type = kInteger,
                      .help = "maximum number of lines",
                      .standard = 50,
                      .least = 1,
                      .most = 10000},
                     {.name = "from",
                      .type = kInteger,
                      .help = "number of the first line (default 0: the last lines)",
                      .standard = 0,
                      .least = 0,
                      .most = 1e12},
                     {.name = "max_wait",
                      .type = kNumber,
                      .help = "with from: seconds to wait for that line to be printed",
                      .standard = 0,
                      .least = 0,
                      .most = 86400}},
       .result = "session:string state:string lines:strings first:integer next:integer total:integer output:string "
                 "unfinished?:string",
       .reads = true,
       .examples = {"lockstep debug log --lines 20", "lockstep debug log --follow"},
       .call = &log},
      {.name = "debug trace show",
       .help = "show the session's trace, line by line",
       .arguments = {session,
                     {.name = "kind", .help = "only these: stop, resume, evaluation, breakpoint, output, end, ..."},
                     {.name = "after",
                      .type = kInteger,
                      .help = "lines after this number (default: the last ones)",
                      .least = 0,
                      .most = 1e12},
                     limit_argument("lines", 20, 10000)},
       .result = "lines:objects total:integer skipped:integer trace:string",
       .reads = true,
       .examples = {"lockstep debug trace show", "lockstep debug trace show --kind stop --limit 5"},
       .call = &trace_show},
      {.name = "debug trace export",
       .help = "write the trace as one JSON document",
       .arguments = {session,
                     {.name = "to",
                      .help = "file to write (default: trace.json in the session's folder)",
                      .path = true}},
       .result = "path:string session_id:any total_steps:integer breakpoints:integer output_lines:integer "
                 "skipped_lines:integer",
       .examples = {"lockstep debug trace export --to trace.json"},
       .call = &trace_export},
  };
}

}  // namespace lockstep
