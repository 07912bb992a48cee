// debug twin: two programs in step. Each side is a session of its own as well, which every other operation takes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/base64.h"
#include "base/error.h"
#include "compare/pairing.h"
#include "debugger/session_fields.h"
#include "service/groups.h"
#include "service/service.h"
#include "service/twins.h"

namespace lockstep {
namespace {

using enum ArgumentType;

constexpr double kAnswerSecs = 15;
constexpr size_t kMostDifferences = 40;  // tensors of a frame that are compared for one look
constexpr const char* kTwinFields =
    "twin:string reference:object candidate:object stopped:boolean comparison?:object differences?:objects "
    "hint?:string";

struct Sides {
  Twin twin;
  std::shared_ptr<Session> reference, candidate;
};

Sides sides_of(Service& service, const Json& arguments) {
  Sides sides{Twins(service.home()).find(text_argument(arguments, "twin")), nullptr, nullptr};
  sides.reference = service.sessions().find(sides.twin.reference);
  sides.candidate = service.sessions().find(sides.twin.candidate);
  return sides;
}

// What one of them says, or why it cannot.
template <typename Ask>
Json answer_of(Ask ask) {
  try {
    return ask();
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;
    return {{"error", {{"code", std::string(code_name(error.code()))}, {"message", error.what()}}}};
  }
}

Json brief_status(const Session& session) {
  const Json whole = session.status();
  Json out = Json::object();
  for (const char* name : {"session", "id", "state", "stop", "end", "program", "pid", "output"})
    if (whole.contains(name)) out[name] = whole[name];
  return out;
}

void set_gate(Session& session, const Json& wanted) {
  if (session.live()) session.ask("gate", wanted, kAnswerSecs);
}

// Both are told how to go on, and that it is the same turn: what one has said in an earlier one is for nobody.
void set_gates(const Sides& sides, Json wanted) {
  wanted["turn"] = static_cast<int64_t>(now_secs() * 1e6);
  for (Session* one : {sides.reference.get(), sides.candidate.get()}) set_gate(*one, wanted);
}

// What was compared so far; of a candidate that has ended, what it said last.
Json comparison_of(const Sides& sides) {
  if (sides.candidate->live())
    return answer_of([&] { return sides.candidate->ask("gate", Json::object(), kAnswerSecs); });
  const Json report = sides.candidate->report();
  return report.is_object() ? report.value("gate", Json(nullptr)) : Json(nullptr);
}

Json both(const Sides& sides) {
  Json out{{"twin", sides.twin.name},
           {"reference", brief_status(*sides.reference)},
           {"candidate", brief_status(*sides.candidate)}};
  const auto stands = [](const Session& session) { return session.state() == "stopped"; };
  out["stopped"] = stands(*sides.reference) && stands(*sides.candidate);
  if (Json compared = comparison_of(sides); compared.is_object()) out["comparison"] = std::move(compared);
  return out;
}

bool waits_at_the_gate(Session& session) {
  return answer_of([&] { return session.ask("gate", Json::object(), kAnswerSecs); }).value("mode", Json("off")) !=
         Json("off");
}

// Until both stand or have ended. One that stands alone holds the other where it waits for it; one that has ended lets
// the other go on by itself.
Json settled(const Sides& sides, int64_t reference_stops, int64_t candidate_stops, double secs, CallControl& control) {
  const auto cancelled = [&] { return control.cancelled(); };
  const double most = std::min(secs, control.longest_wait_secs), began = now_secs();
  bool told_reference = false, told_candidate = false;
  const auto arrived = [](const Session& session, int64_t stops) { return !session.live() || session.stops() > stops; };
  while (true) {
    const bool r = arrived(*sides.reference, reference_stops), c = arrived(*sides.candidate, candidate_stops);
    if (r && c) break;
    if (now_secs() - began >= most || control.cancelled()) break;
    if (r || c) {
      // The stop of one is told to the other before it is seen here, unless it came from elsewhere.
      Session& waiting = r ? *sides.candidate : *sides.reference;
      Session& settled_one = r ? *sides.reference : *sides.candidate;
      bool& told = r ? told_candidate : told_reference;
      const int64_t before = r ? candidate_stops : reference_stops;
      waiting.wait_for_stop(before, std::min(0.3, most), cancelled);
      if (!told && !arrived(waiting, before) && waits_at_the_gate(waiting)) {
        told = true;
        set_gate(waiting, {{"mode", settled_one.live() ? "hold" : "off"}});
      }
      continue;
    }
    Session& first = r ? *sides.candidate : *sides.reference;
    first.wait_for_stop(r ? candidate_stops : reference_stops, std::min(0.05, most), cancelled);
    control.progress(now_secs() - began, "both programs are running");
  }
  Json out = both(sides);
  const bool standing = arrived(*sides.reference, reference_stops) && arrived(*sides.candidate, candidate_stops);
  if (!standing) out["hint"] = "still running: debug twin wait";
  return out;
}

Json resume_both(const Sides& sides, const char* operation, double secs, CallControl& control) {
  const int64_t reference = sides.reference->stops(), candidate = sides.candidate->stops();
  bool any = false;
  for (Session* one : {sides.reference.get(), sides.candidate.get()})
    if (one->state() == "stopped") {
      one->ask(operation, Json::object(), kAnswerSecs, [&] { return control.cancelled(); });
      any = true;
    }
  if (!any && !sides.reference->live() && !sides.candidate->live())
    fail(Code::kConflict, "twin", "both programs have ended", {.hint = "debug twin REFERENCE.py CANDIDATE.py"});
  return settled(sides, reference, candidate, secs, control);
}

Environment environment_with(const Json& arguments, const Json& twin) {
  Environment variables;
  if (arguments.contains("whole_environment"))
    for (const auto& [name, value] : arguments["whole_environment"].items()) variables[name] = value.get<std::string>();
  else
    variables = current_environment();
  if (arguments.contains("env"))
    for (const auto& [name, value] : arguments["env"].items()) variables[name] = value.get<std::string>();
  variables["LOCKSTEP_AGENT_TWIN"] = twin.dump(-1, ' ', true, Json::error_handler_t::replace);
  return variables;
}

Json start_twin(Service& service, const Json& arguments, CallControl& control) {
  Json rules = Json::array();
  if (arguments.contains("map"))
    for (const MapRule& rule : read_map(text_argument(arguments, "map")))
      rules.push_back({{"candidate", rule.candidate}, {"reference", rule.reference}});
  const std::string name = arguments.contains("name") ? text_argument(arguments, "name")
                                                      : fs::path(text_argument(arguments, "candidate")).stem().string();
  const Twins twins(service.home());
  const fs::path place = twins.make_meeting_place(name);
  Sides sides{{name, "", ""}, nullptr, nullptr};
  for (const char* side : {"reference", "candidate"}) {
    const std::string script = text_argument(arguments, side);
    std::error_code error;
    if (!fs::is_regular_file(script, error)) fail(Code::kNotFound, "twin", "there is no file " + script);
    SessionRequest request;
    request.home = service.home();
    request.script = script;
    if (arguments.contains("arguments")) request.arguments = arguments["arguments"].get<std::vector<std::string>>();
    request.name = name + "-" + side;
    const std::string python = std::string(side) == "candidate" && arguments.contains("candidate_python")
                                   ? text_argument(arguments, "candidate_python")
                                   : text_argument(arguments, "python");
    request.python = python;
    request.cwd = arguments.contains("cwd") ? fs::path(text_argument(arguments, "cwd")) : fs::current_path();
    request.environment = environment_with(arguments, {{"side", side}, {"folder", place.string()}, {"map", rules}});
    const auto session = service.sessions().start(std::move(request));
    (std::string(side) == "reference" ? sides.reference : sides.candidate) = session;
    (std::string(side) == "reference" ? sides.twin.reference : sides.twin.candidate) = session->identity().id;
  }
  twins.keep(place, sides.twin);
  for (Session* one : {sides.reference.get(), sides.candidate.get()}) {
    one->wait_for_stop(0, std::min(60.0, control.longest_wait_secs), [&] { return control.cancelled(); });
    if (!one->live())
      fail(Code::kIo, "twin",
           one->end().value("description", std::string("the program did not start")) +
               last_output(one->identity().folder / "output.log", 5));
  }
  Json out = both(sides);
  out["hint"] = "next: debug twin continue --until-divergence";
  return out;
}

Json go_on_together(Service& service, const Json& arguments, CallControl& control) {
  const Sides sides = sides_of(service, arguments);
  const bool until = arguments["until_divergence"].get<bool>();
  const std::string at = text_argument(arguments, "at");
  const std::string mode = until ? "divergence" : !at.empty() ? "meet" : "off";
  Json wanted{{"mode", mode}, {"place", at}};
  if (arguments.contains("call")) {
    if (at.empty()) fail(Code::kBadInput, "twin", "a call of which module?", {.hint = "at with call"});
    wanted["call"] = arguments["call"];
  }
  set_gates(sides, wanted);
  return resume_both(sides, "continue", arguments["max_wait"].get<double>(), control);
}

Json next_together(Service& service, const Json& arguments, CallControl& control) {
  const Sides sides = sides_of(service, arguments);
  const bool call = arguments["call"].get<bool>();
  set_gates(sides, {{"mode", call ? "next" : "off"}});
  return resume_both(sides, call ? "continue" : "next", arguments["max_wait"].get<double>(), control);
}

Json substitute(Service& service, const Json& arguments, CallControl& control) {
  const Sides sides = sides_of(service, arguments);
  Json wanted{{"replace", true}};
  if (arguments.contains("name")) wanted = {{"substitute", arguments["name"]}};
  sides.candidate->ask("gate", wanted, kAnswerSecs);
  if (!arguments["run"].get<bool>()) return both(sides);
  set_gates(sides, {{"mode", "divergence"}});
  return resume_both(sides, "continue", arguments["max_wait"].get<double>(), control);
}

Json wait_for_both(Service& service, const Json& arguments, CallControl& control) {
  const Sides sides = sides_of(service, arguments);
  const auto standing = [](const Session& session) {
    return session.state() == "stopped" ? session.stops() - 1 : session.stops();
  };
  return settled(sides, standing(*sides.reference), standing(*sides.candidate), arguments["max_wait"].get<double>(),
                 control);
}

Json twin_status(Service& service, const Json& arguments, CallControl&) {
  return both(sides_of(service, arguments));
}

Json end_both(Service& service, const Json& arguments, CallControl&) {
  const Sides sides = sides_of(service, arguments);
  for (Session* one : {sides.reference.get(), sides.candidate.get()}) one->terminate(false);
  return both(sides);
}

const Json* tensor_in(const Json& value) {
  if (!value.is_object()) return nullptr;
  const auto found = value.find("tensor");
  return found == value.end() || !found->is_object() ? nullptr : &*found;
}

std::vector<float> floats_from(const Json& numbers) {
  const Json text = numbers.value("floats", Json(""));
  const auto bytes = text.is_string() ? bytes_from_base64(text.get_ref<const std::string&>()) : std::nullopt;
  std::vector<float> values(bytes ? bytes->size() / 4 : 0);
  if (bytes) std::memcpy(values.data(), bytes->data(), values.size() * 4);
  return values;
}

// How far two tensors of the same name are apart, by the values that a picture of each would show: all of them, or
// every n-th.
Json difference_of(const Sides& sides, const std::string& expression, const Json& place) {
  Json wanted{{"expression", expression}};
  wanted.update(place);
  const Json one = sides.reference->ask("picture", wanted, 30), other = sides.candidate->ask("picture", wanted, 30);
  Json out{{"expression", expression}, {"shape", one.value("shape", Json::array())}};
  if (one.value("shape", Json(1)) != other.value("shape", Json(2))) {
    out["candidate_shape"] = other.value("shape", Json::array());
    out["kind"] = "shape";
    return out;
  }
  const std::vector<float> a = floats_from(one), b = floats_from(other);
  double squared = 0, size = 0, most = 0;
  size_t unequal = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double apart = static_cast<double>(b[i]) - a[i];
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    ++unequal;
    squared += apart * apart;
    most = std::isfinite(apart) ? std::max(most, std::abs(apart)) : INFINITY;
  }
  for (const float value : a) size += std::isfinite(value) ? static_cast<double>(value) * value : 0;
  out["kind"] = "values";
  out["relative"] = json_number(unequal == 0 ? 0 : std::sqrt(squared / (size > 0 ? size : 1)));
  out["max_abs"] = json_number(most);
  out["unequal"] = unequal;
  out["of"] = a.size();
  out["every"] = one.value("step", 1);
  return out;
}

Json vars_of_both(Service& service, const Json& arguments, CallControl& control) {
  const Sides sides = sides_of(service, arguments);
  Json wanted{{"limit", arguments["limit"]}, {"frame", arguments["frame"]}};
  if (arguments.contains("filter")) wanted["filter"] = arguments["filter"];
  const auto look = [&](Session& session) {
    return answer_of([&] { return session.ask("vars", wanted, 30, [&] { return control.cancelled(); }); });
  };
  const Json there = look(*sides.reference), here = look(*sides.candidate);
  Json rows = Json::array(), differences = Json::array();
  const auto named = [](const Json& answer) {
    const Json variables = answer.value("variables", Json::array());
    return variables;
  };
  const Json ones = named(there), others = named(here);
  const auto find = [](const Json& all, const Json& name) -> Json {
    for (const Json& one : all)
      if (one["name"] == name) return one.value("value", Json(nullptr));
    return nullptr;
  };
  for (const Json& one : ones) {
    Json row{{"name", one["name"]}, {"reference", one["value"]}, {"candidate", find(others, one["name"])}};
    if (tensor_in(row["reference"]) && tensor_in(row["candidate"]) && differences.size() < kMostDifferences) {
      Json apart = answer_of([&] {
        return difference_of(sides, one["name"].get<std::string>(), {{"frame", arguments["frame"]}});
      });
      row["difference"] = apart;
      differences.push_back(std::move(apart));
    }
    rows.push_back(std::move(row));
  }
  for (const Json& other : others)
    if (find(ones, other["name"]).is_null())
      rows.push_back({{"name", other["name"]}, {"reference", nullptr}, {"candidate", other["value"]}});
  Json out{{"twin", sides.twin.name}, {"variables", std::move(rows)}};
  if (there.contains("error")) out["reference_error"] = there["error"];
  if (here.contains("error")) out["candidate_error"] = here["error"];
  return out;
}

Json eval_both(Service& service, const Json& arguments, CallControl& control) {
  const Sides sides = sides_of(service, arguments);
  const std::string expression = text_argument(arguments, "expression");
  const auto look = [&](Session& session) {
    return answer_of([&] {
      return session.ask("eval", {{"expression", expression}, {"frame", arguments["frame"]}}, 30,
                         [&] { return control.cancelled(); });
    });
  };
  Json out{{"twin", sides.twin.name}, {"reference", look(*sides.reference)}, {"candidate", look(*sides.candidate)}};
  if (tensor_in(out["reference"].value("value", Json(nullptr))) &&
      tensor_in(out["candidate"].value("value", Json(nullptr))))
    out["difference"] = answer_of([&] { return difference_of(sides, expression, {{"frame", arguments["frame"]}}); });
  return out;
}

}  // namespace

std::vector<Operation> twin_operations() {
  const Argument twin{.name = "twin", .help = "name of the twin session (default: the one started last)"};
  const Argument frame = frame_argument();
  return {
      {.name = "debug twin start",
       .help = "start a reference and a candidate together, both stopped before their first line",
       .arguments =
           {{.name = "reference", .help = "the correct script", .required = true, .positional = true, .path = true},
            {.name = "candidate", .help = "the port", .required = true, .positional = true, .path = true},
            {.name = "arguments", .type = kTextList, .help = "arguments of both", .positional = true},
            {.name = "map",
             .help = "maps the candidate's module names to the reference's, as in compare --map",
             .path = true,
             .value = "FILE"},
            {.name = "name", .help = "name of the twin session (default: the candidate's)"},
            {.name = "python", .help = "the Python to use (default: the active environment's)"},
            {.name = "candidate_python", .help = "the Python for the candidate"},
            {.name = "cwd", .help = "folder to run in (default: the caller's)", .path = true},
            {.name = "env", .type = kTextMap, .help = "additional environment variables"},
            {.name = "whole_environment",
             .type = kTextMap,
             .help = "the environment in place of the service's own; the command line sends the caller's"}},
       .result = kTwinFields,
       .examples = {"lockstep debug twin start reference.py candidate.py",
                    "lockstep debug twin start reference.py candidate.py --map names.json"},
       .call = &start_twin},
      {.name = "debug twin continue",
       .help = "run both: until they diverge, to a shared module or checkpoint, or to the next breakpoint of each",
       .arguments = {twin,
                     {.name = "until_divergence",
                      .type = kBool,
                      .help = "stop both at the first module whose outputs differ beyond the noise floor",
                      .standard = false},
                     {.name = "at", .help = "stop both at the next module or checkpoint of this name (a glob)"},
                     {.name = "call",
                      .type = kInteger,
                      .help = "with at: only at this call, counted from 0; for a transformer, the step",
                      .least = 0,
                      .most = 1e9,
                      .value = "N"},
                     max_wait_argument(60)},
       .result = kTwinFields,
       .examples = {"lockstep debug twin continue --until-divergence",
                    "lockstep debug twin continue --at 'blocks.7.attn'",
                    "lockstep debug twin continue --at transformer --call 3"},
       .call = &go_on_together},
      {.name = "debug twin next",
       .help = "run both to the next line, or to the next module call they share",
       .arguments = {twin,
                     {.name = "call",
                      .type = kBool,
                      .help = "to the output of the next module that both have",
                      .standard = false},
                     max_wait_argument(60)},
       .result = kTwinFields,
       .examples = {"lockstep debug twin next", "lockstep debug twin next --call"},
       .call = &next_together},
      {.name = "debug twin vars",
       .help = "show the variables of both frames side by side, with the difference of matching tensors",
       .arguments = {twin, frame, {.name = "filter", .help = "glob of names"}, limit_argument("variables", 100, 1000)},
       .result = "twin:string variables:objects reference_error?:object candidate_error?:object",
       .reads = true,
       .examples = {"lockstep debug twin vars"},
       .call = &vars_of_both},
      {.name = "debug twin eval",
       .help = "evaluate the same Python in both frames, with the difference if both are tensors",
       .arguments = {{.name = "expression", .help = "Python", .required = true, .positional = true}, twin, frame},
       .result = "twin:string reference:object candidate:object difference?:object",
       .slow = true,
       .examples = {"lockstep debug twin eval 'hidden_states'"},
       .call = &eval_both},
      {.name = "debug twin substitute",
       .help = "continue the candidate with the reference's tensor, to the next divergence",
       .arguments = {twin,
                     {.name = "name", .help = "do so at every later call of matching modules (glob)"},
                     {.name = "run", .type = kBool, .help = "go on", .standard = true, .help_off = "stay stopped"},
                     max_wait_argument(60)},
       .result = kTwinFields,
       .examples = {"lockstep debug twin substitute", "lockstep debug twin substitute --name 'blocks.*.attn'"},
       .call = &substitute},
      {.name = "debug twin wait",
       .help = "wait until both have stopped or ended",
       .arguments = {twin, max_wait_argument(60)},
       .result = kTwinFields,
       .reads = true,
       .examples = {"lockstep debug twin wait"},
       .call = &wait_for_both},
      {.name = "debug twin status",
       .help = "show where both are, and what was compared so far",
       .arguments = {twin},
       .result = kTwinFields,
       .reads = true,
       .examples = {"lockstep debug twin status"},
       .call = &twin_status},
      {.name = "debug twin terminate",
       .help = "end both programs",
       .arguments = {twin},
       .result = kTwinFields,
       .examples = {"lockstep debug twin terminate"},
       .call = &end_both},
  };
}

}  // namespace lockstep
