// debug eval, set, vars, stack, location, source, threads, files, checkpoints: the program's side does the looking.
#include "base/error.h"
#include "base/names.h"
#include "debugger/session_fields.h"
#include "service/groups.h"
#include "service/service.h"

namespace lockstep {
namespace {

using enum ArgumentType;

Json look(const char* operation, Service& service, const Json& arguments, CallControl& control, double secs = 15) {
  const auto session = service.sessions().find(text_argument(arguments, "session"));
  Json wanted = arguments;
  wanted.erase("session");
  return session->ask(operation, wanted, secs, [&] { return control.cancelled(); });
}

Json eval(Service& service, const Json& arguments, CallControl& control) {
  return look("eval", service, arguments, control, arguments["timeout"].get<double>() + 10);
}

Json set(Service& service, const Json& arguments, CallControl& control) {
  return look("set", service, arguments, control, 30);
}

Json vars(Service& service, const Json& arguments, CallControl& control) {
  return look("vars", service, arguments, control, 30);
}

Json stack(Service& service, const Json& arguments, CallControl& control) {
  return look("stack", service, arguments, control);
}

Json location(Service& service, const Json& arguments, CallControl& control) {
  const auto session = service.sessions().find(text_argument(arguments, "session"));
  if (const Json end = session->end(); !end.is_null()) {
    // Where it ended is the place that matters once it has.
    const Json place = end.value("location", Json(nullptr));
    Json code = code_around(place, static_cast<int>(arguments["around"].get<int64_t>()));
    Json out{{"location", place}, {"not_run_yet", false}, {"note", end.value("description", std::string())}};
    if (!code.is_null()) out["code"] = std::move(code);
    return out;
  }
  return look("location", service, arguments, control);
}

Json source(Service& service, const Json& arguments, CallControl& control) {
  return look("source", service, arguments, control);
}

Json threads(Service& service, const Json& arguments, CallControl& control) {
  return look("threads", service, arguments, control);
}

// After the end the program's last words answer.
Json files(Service& service, const Json& arguments, CallControl& control) {
  const std::string spec = text_argument(arguments, "session");
  if (const auto session = service.sessions().known(spec); session && session->live()) {
    Json out = look("files", service, arguments, control, 30);
    if (out.value("calls_counted", Json(true)) == Json(false))
      out["hint"] = "how often: debug count counts calls from now on, debug restart --count-calls from the beginning";
    return out;
  }
  const Json report = last_words(service, spec);
  if (!report.contains("files"))
    fail(Code::kConflict, "files", "the program was ended before it could say which files ran",
         {.hint = "debug restart, then debug files before the end"});
  const Json all = report["files"];
  const std::string filter = text_argument(arguments, "filter");
  const auto wanted = [&](const Json& file) {
    const std::string path = file.is_object() ? text(file, "file") : "";  // the program's word
    return filter.empty() || path.find(filter) != std::string::npos || glob_match(filter, path);
  };
  Json found = Json::array();
  size_t total = 0;
  for (const Json& file : all)
    if (wanted(file) && ++total <= static_cast<size_t>(arguments["limit"].get<int64_t>())) found.push_back(file);
  Json out{{"files", found},
           {"total", total},
           {"truncated", total > found.size() || report.value("truncated", Json(false)) == Json(true)},
           {"calls_counted", report.value("calls_counted", Json(false))}};
  if (out["calls_counted"] != Json(true))
    out["hint"] =
        "how much of each ran is known before the end; how often, with debug restart --count-calls after it too";
  return out;
}

Json count(Service& service, const Json& arguments, CallControl& control) {
  return look("count", service, arguments, control);
}

Json checkpoints(Service& service, const Json& arguments, CallControl& control) {
  const std::string spec = text_argument(arguments, "session");
  const auto session = service.sessions().known(spec);
  if (!session || !session->live())
    return {{"checkpoints", last_words(service, spec).value("checkpoints", Json::array())}};
  return look("checkpoints", service, arguments, control);
}

}  // namespace

std::vector<Operation> looking_operations() {
  const Argument session = session_argument();
  const Argument frame = frame_argument();
  const Argument thread = thread_argument();
  return {
      {.name = "debug eval",
       .help = "evaluate Python in the stopped frame; assignments persist, the last expression is the result",
       .arguments = {{.name = "expression", .help = "Python, one line or many", .required = true, .positional = true},
                     session,
                     frame,
                     thread,
                     {.name = "timeout",
                      .type = kNumber,
                      .help = "time limit in seconds",
                      .standard = 10,
                      .least = 0.001,
                      .most = 3600},
                     {.name = "stats",
                      .type = kBool,
                      .help = "statistics and edges of a tensor",
                      .standard = true,
                      .help_off = "only shape, dtype and device of a tensor; nothing is computed"},
                     {.name = "keep",
                      .type = kBool,
                      .help = "keep the result while the program is stopped; kept is an expression for it",
                      .standard = false}},
       .result = "value:any assigned?:strings printed?:string took_us?:number parts?:object kept?:any",
       .slow = true,
       .examples = {"lockstep debug eval 'latents.shape'",
                    "lockstep debug eval 'import math; math.sqrt(scale)' --frame 1"},
       .call = &eval},
      {.name = "debug set",
       .help = "assign to a variable, an attribute or an item in the stopped frame",
       .arguments = {{.name = "name",
                      .help = "what to assign to: x, self.scale, sigmas[0]",
                      .required = true,
                      .positional = true},
                     {.name = "value", .help = "a Python expression", .required = true, .positional = true},
                     session,
                     frame,
                     thread},
       .result = "value:any assigned?:strings",
       .examples = {"lockstep debug set scale 0.5"},
       .call = &set},
      {.name = "debug vars",
       .help = "show the variables of a frame; tensors by shape, dtype and device",
       .arguments =
           {session,
            frame,
            thread,
            {.name = "scope", .help = "local or global", .standard = "local", .choices = {"local", "global"}},
            {.name = "filter", .help = "glob of names"},
            {.name = "of", .help = "show the parts of this expression's value instead: items, rows, attributes"},
            {.name = "parts", .help = "with of: only named or only indexed parts", .choices = {"named", "indexed"}},
            {.name = "from",
             .type = kInteger,
             .help = "number of items to skip",
             .standard = 0,
             .least = 0,
             .most = 1e12},
            limit_argument("variables", 100, 1000)},
       .result = "variables:objects total:integer truncated?:boolean",
       .reads = true,
       .examples = {"lockstep debug vars", "lockstep debug vars --frame 2 --filter 'hidden*'",
                    "lockstep debug vars --of 'self.blocks[0]'", "lockstep debug vars --of latents --from 100"},
       .call = &vars},
      {.name = "debug stack",
       .help = "show the call stack",
       .arguments = {session,
                     thread,
                     {.name = "from",
                      .type = kInteger,
                      .help = "number of items to skip",
                      .standard = 0,
                      .least = 0,
                      .most = 1e6},
                     limit_argument("frames", 50, 1000)},
       .result = "frames:objects total:integer",
       .reads = true,
       .examples = {"lockstep debug stack"},
       .call = &stack},
      {.name = "debug location",
       .help = "show the current line (not run yet) and the code around it",
       .arguments = {session,
                     thread,
                     {.name = "around",
                      .type = kInteger,
                      .help = "lines before and after",
                      .standard = 5,
                      .least = 0,
                      .most = 200}},
       .result = "location:any not_run_yet?:boolean note?:string code?:object stop?:any",
       .reads = true,
       .examples = {"lockstep debug location"},
       .call = &location},
      {.name = "debug source",
       .help = "show lines of a source file, which of them contain code, and its breakpoints",
       .arguments =
           {{.name = "file", .help = "the file (default: the current location)", .positional = true, .path = true},
            session,
            {.name = "line", .type = kInteger, .help = "the line in the middle", .least = 1, .most = 1e9},
            {.name = "around",
             .type = kInteger,
             .help = "lines before and after",
             .standard = 10,
             .least = 0,
             .most = 200}},
       .result = "file:string first:integer lines:strings executable?:array breakpoints?:array",
       .reads = true,
       .examples = {"lockstep debug source model.py --line 42"},
       .call = &source},
      {.name = "debug threads",
       .help = "list the program's threads and their states",
       .arguments = {session},
       .result = "threads:objects",
       .reads = true,
       .examples = {"lockstep debug threads"},
       .call = &threads},
      {.name = "debug files",
       .help = "list the files that ran, how much of each, and how often if calls are counted (debug count)",
       .arguments = {session,
                     {.name = "filter", .help = "glob, or a part of the path"},
                     limit_argument("files", 100, 10000),
                     {.name = "all", .type = kBool, .help = "include the standard library", .standard = false}},
       .result = "files:objects total:integer truncated?:boolean calls_counted?:boolean hint?:string",
       .reads = true,
       .examples = {"lockstep debug files --filter diffusers"},
       .call = &files},
      {.name = "debug count",
       .help = "count every call from now on, for debug files; slows the program down",
       .arguments = {session, {.name = "off", .type = kBool, .help = "stop counting", .standard = false}},
       .result = "calls_counted:boolean",
       .examples = {"lockstep debug count", "lockstep debug count --off"},
       .call = &count},
      {.name = "debug checkpoints",
       .help = "list the checkpoint names passed so far",
       .arguments = {session},
       .result = "checkpoints:objects",
       .reads = true,
       .examples = {"lockstep debug checkpoints"},
       .call = &checkpoints},
  };
}

}  // namespace lockstep
