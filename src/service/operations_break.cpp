// debug break, breaks, remove, clear, why.
#include "base/error.h"
#include "service/groups.h"
#include "service/service.h"

namespace lockstep {
namespace {

using enum ArgumentType;

constexpr double kBreakAnswerSecs = 15;

Json with_session(const Session& session, Json result) {
  Json out{{"session", session.identity().name}};
  out.update(result);
  return out;
}

}  // namespace

// The program's side takes `module` for data breakpoints and `checkpoint` for named ones; the rest is the same.
Json set_breakpoint(Service& service, const Json& arguments, CallControl& control) {
  const auto session = service.sessions().find(text_argument(arguments, "session"));
  Json wanted = Json::object();
  for (const char* name :
       {"where", "module", "checkpoint", "nan", "when", "context", "hits", "hit_when", "once", "log", "capture"})
    if (arguments.contains(name)) wanted[name] = arguments[name];
  if (arguments.contains("if")) wanted["condition"] = arguments["if"];
  const bool data = wanted.value("nan", false) || wanted.contains("when");
  if (!data) wanted.erase("nan");
  if (data && !wanted.contains("module") && !wanted.contains("checkpoint")) {
    const std::string where = text_argument(arguments, "where");
    if (where.ends_with(".py") || where.find(':') != std::string::npos)
      fail(Code::kBadInput, "break", "nan and when are about tensors that modules give back, not about a line",
           {.expected = "--module GLOB with them, or --if EXPR at a line", .hint = "--if"});
    wanted["module"] = wanted.contains("where") ? wanted["where"] : Json("*");  // a glob of module names
    wanted.erase("where");
  }
  if (!wanted.contains("where") && !wanted.contains("module") && !wanted.contains("checkpoint"))
    fail(Code::kBadInput, "break", "where to stop is missing",
         {.expected = "FILE:LINE, FUNCTION, statement text, --checkpoint NAME, or --nan and --when on --module GLOB"});
  if (wanted.contains("module") && !data)
    fail(Code::kBadInput, "break", "module names where data is watched, not what for",
         {.expected = "--nan or --when EXPR"});
  Json result = session->ask("break", wanted, kBreakAnswerSecs, [&] { return control.cancelled(); });
  const Json made = result.value("breakpoint", Json::object());
  if (made.contains("id") && made["id"].is_number_integer())
    session->remember_breakpoint(made["id"].get<int64_t>(), wanted);
  return with_session(*session, std::move(result));
}

namespace {

bool answers(Service& service, const std::string& spec, std::shared_ptr<Session>& session) {
  const std::string id = service.sessions().folder_of(spec).filename().string();
  try {
    session = service.sessions().find(id);
  } catch (const Error&) {
    return false;
  }
  return session->live() && session->state() != "detached";
}

Json breaks(Service& service, const Json& arguments, CallControl& control) {
  const std::string spec = text_argument(arguments, "session");
  std::shared_ptr<Session> session;
  if (answers(service, spec, session))
    return with_session(*session,
                        session->ask("breaks", Json::object(), kBreakAnswerSecs, [&] { return control.cancelled(); }));
  const Json report = last_words(service, spec);
  return {{"session", service.sessions().record_of(spec).value("session", Json(""))},
          {"breakpoints", report.value("breakpoints", Json::array())},
          {"ended", true}};
}

Json remove(Service& service, const Json& arguments, CallControl& control) {
  const auto session = service.sessions().find(text_argument(arguments, "session"));
  Json wanted = Json::object();
  const std::string which = arguments["which"].get<std::string>();
  if (which.find_first_not_of("0123456789") == std::string::npos && !which.empty() && which.size() < 10)
    wanted["id"] = std::stoll(which);
  else
    wanted["where"] = which;
  Json result = session->ask("remove", wanted, kBreakAnswerSecs, [&] { return control.cancelled(); });
  session->forget_breakpoints(result.value("removed", Json::array()));
  return with_session(*session, std::move(result));
}

// Of a program that has ended too: restart would set them again. One of an earlier service is not restarted.
Json clear(Service& service, const Json& arguments, CallControl& control) {
  const std::string spec = text_argument(arguments, "session");
  const auto session = service.sessions().known(spec);
  if (!session)
    return {{"session", service.sessions().record_of(spec).value("session", Json(""))}, {"removed", Json::array()}};
  Json result = session->live()
                    ? session->ask("clear", Json::object(), kBreakAnswerSecs, [&] { return control.cancelled(); })
                    : Json{{"removed", session->remembered_ids()}};
  session->forget_breakpoints(result.value("removed", Json::array()));
  return with_session(*session, std::move(result));
}

// Of a program that has ended: the reason that it left for this breakpoint, and how it ended.
Json why_after_the_end(Service& service, const std::string& spec, const std::string& which) {
  const Json report = last_words(service, spec), record = service.sessions().record_of(spec);
  const Json end = record.value("end", Json::object());
  const Json reasons = report.value("why", Json::object()), all = report.value("breakpoints", Json::array());
  for (const Json& breakpoint : all) {
    if (!breakpoint.is_object()) continue;
    const std::string id = breakpoint.value("id", Json(0)).dump();
    const Json where = breakpoint.value("where", Json(""));
    if (id != which && !(where.is_string() && where.get<std::string>() == which)) continue;
    if (reasons.is_object() && reasons.contains(id)) {
      Json answer = reasons[id];
      answer["end"] = end;
      return answer;
    }
    return {{"answer", "it has stopped the program: see hit_count"},
            {"causes", Json::array({{{"cause", "hit"}, {"message", "it has hit"}}})},
            {"breakpoint", breakpoint},
            {"end", end}};
  }
  if (!end.empty() && all.empty())  // killed or crashed: it could leave no reasons
    return {{"answer", "the program ended first: " + end.value("description", std::string())},
            {"causes", Json::array({{{"cause", "ended_first"},
                                     {"message", end.value("description", std::string())},
                                     {"how", end.value("how", Json(""))},
                                     {"location", end.value("location", Json(nullptr))}}})},
            {"end", end}};
  fail(Code::kNotFound, "why", "nothing is known of breakpoint " + which, {.hint = "debug breaks"});
}

Json why(Service& service, const Json& arguments, CallControl& control) {
  const std::string spec = text_argument(arguments, "session"), which = arguments["which"].get<std::string>();
  std::shared_ptr<Session> session;
  if (!answers(service, spec, session)) return why_after_the_end(service, spec, which);
  Json wanted = Json::object();
  if (which.find_first_not_of("0123456789") == std::string::npos && !which.empty() && which.size() < 10)
    wanted["id"] = std::stoll(which);
  else
    wanted["where"] = which;
  return session->ask("why", wanted, kBreakAnswerSecs, [&] { return control.cancelled(); });
}

}  // namespace

Json last_words(Service& service, const std::string& spec) {
  const fs::path folder = service.sessions().folder_of(spec);
  Json record;
  try {
    record = read_json(folder / "session.json", 64 << 20);
  } catch (const Error&) {
  }
  const Json report = record.is_object() ? record.value("report", Json(nullptr)) : Json(nullptr);
  return report.is_object() ? report : Json::object();
}

std::vector<Operation> breakpoint_operations() {
  const Argument session = session_argument();
  const Argument which{.name = "which",
                       .help = "number of a breakpoint, or its place as it was given",
                       .required = true,
                       .positional = true,
                       .path = false};
  return {
      {.name = "debug break",
       .help = "stop, log or record at a line, a function, a statement, a checkpoint, or where a tensor goes bad",
       .arguments =
           {{.name = "where",
             .help = "FILE:LINE, FUNCTION (Class.method), statement text, or FILE:statement text",
             .positional = true,
             .path = true},
            session,
            {.name = "if", .help = "stop only where this expression is true"},
            {.name = "hits", .type = kInteger, .help = "let the first N-1 hits pass", .least = 1, .most = 1e12},
            {.name = "hit_when",
             .help = "which hits stop: \"== 3\" the third, \">= 3\" from then on, \"% 3\" every third"},
            {.name = "once", .type = kBool, .help = "remove it after it has stopped", .standard = false},
            {.name = "log", .help = "print this expression at each hit and do not stop"},
            {.name = "capture", .help = "NAME=EXPR: record this tensor at each hit and do not stop"},
            {.name = "module", .help = "glob of module names whose outputs are watched (with nan or when)"},
            {.name = "checkpoint", .help = "name or glob of checkpoint() calls"},
            {.name = "context", .type = kTextMap, .help = "only checkpoints with these tags"},
            {.name = "nan", .type = kBool, .help = "stop where a tensor holds NaN or infinities", .standard = false},
            {.name = "when", .help = "stop where this holds of a tensor's statistics: \"absmax > 1e4\""}},
       .result = "session:string breakpoint:object",
       .examples = {"lockstep debug break model.py:42 --if 'step > 900'",
                    "lockstep debug break Attention.forward --once",
                    "lockstep debug break --nan --module 'transformer.*'",
                    "lockstep debug break --checkpoint 'block_*' --hits 3",
                    "lockstep debug break loop.py:7 --log 'x.shape'"},
       .call = &set_breakpoint},
      {.name = "debug breaks",
       .help = "the breakpoints, where they really are, and how often each was reached",
       .arguments = {session},
       .result = "session:string breakpoints:objects total?:integer ended?:boolean",
       .reads = true,
       .examples = {"lockstep debug breaks"},
       .call = &breaks},
      {.name = "debug remove",
       .help = "remove a breakpoint, at once, even in a running loop",
       .arguments = {which, session},
       .result = "session:string removed:array",
       .examples = {"lockstep debug remove 1", "lockstep debug remove model.py:42"},
       .call = &remove},
      {.name = "debug clear",
       .help = "remove all breakpoints",
       .arguments = {session},
       .result = "session:string removed:array",
       .examples = {"lockstep debug clear"},
       .call = &clear},
      {.name = "debug why",
       .help =
           "why a breakpoint did not stop: never executed, another copy, no code there, condition false, ended first",
       .arguments = {which, session},
       .result = "answer:string causes:objects breakpoint?:object end?:object",
       .reads = true,
       .examples = {"lockstep debug why 1"},
       .call = &why},
  };
}

}  // namespace lockstep
