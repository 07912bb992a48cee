// zoom: from the stage to the line.
#include <algorithm>
#include <future>

#include "compare/question.h"
#include "service/groups.h"
#include "service/service.h"
#include "service/twins.h"
#include "service/zoom_question.h"
#include "zoom/answer_text.h"
#include "zoom/cause.h"
#include "zoom/rerun.h"

namespace lockstep {
namespace {

using enum ArgumentType;

constexpr int kMostCallers = 4;         // looked into, one after the other, where a call's own inputs are wrong
constexpr size_t kMostCausesAsked = 4;  // regions that known causes are looked for in

struct ZoomTarget {
  zoom::Call reference, candidate;
};

// The module that holds a name, so many parts up.
std::string without_last(std::string name, size_t parts) {
  for (; parts > 0; --parts) {
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) break;
    name.resize(dot);
  }
  return name;
}

zoom::Call call_of(const RecordedTensor& tensor, std::string module) {
  zoom::Call call;
  call.module = std::move(module);
  call.step = tensor.key.step;
  call.hit = tensor.key.hit;
  for (const auto& [tag, value] : tensor.key.tags)
    if (tag == "pass") call.pass = value;
  return call;
}

// A pipeline of diffusers, whose own code can be traced too.
bool is_pipeline(const RunView& run) {
  return std::any_of(run.records.begin(), run.records.end(),
                     [](const RecordedTensor& record) { return record.role == Role::kCheckpoint; });
}

// The candidate's module that answers a module of the reference: what its outputs are paired with, or, where these were
// not recorded, as many parts above the candidate's tensor as the reference's module is above its own.
std::string module_like(const CompareAnswer& answer, const std::string& module, const Pair& bad) {
  for (const PairResult& result : answer.comparison.results) {
    const RecordedTensor& left = answer.reference.records[result.pair.reference];
    const RecordedTensor& right = answer.candidate.records[result.pair.candidate];
    if (left.key.name == module && left.role == Role::kOutput && right.role == Role::kOutput) return right.key.name;
  }
  const std::string& name = answer.reference.records[bad.reference].key.name;
  size_t parts = 0;
  if (name.starts_with(module + "."))
    for (size_t at = module.size(); at < name.size(); ++at) parts += name[at] == '.';
  return without_last(answer.candidate.records[bad.candidate].key.name, parts);
}

// The call to look into is the first divergence's: the module itself, or the parent whose own code lies between
// modules.
ZoomTarget first_divergence(const CompareAnswer& answer) {
  const Comparison& comparison = answer.comparison;
  if (!comparison.first)
    fail(Code::kNotFound, "zoom", "the two runs do not diverge", {.got = comparison.verdict, .hint = "--stage NAME"});
  const PairResult& bad = comparison.results[comparison.first->result];
  const RecordedTensor& left = answer.reference.records[bad.pair.reference];
  const RecordedTensor& right = answer.candidate.records[bad.pair.candidate];
  const bool glue =
      comparison.first->kind == "glue" &&
      (!comparison.first->parent.empty() || (is_pipeline(answer.reference) && is_pipeline(answer.candidate)));
  const std::string module = !glue                              ? comparison.first->stage
                             : comparison.first->parent.empty() ? "pipeline"
                                                                : comparison.first->parent;
  // The pipeline's own code is one call, whatever step shows its error.
  if (glue && module == "pipeline") return {{.module = module}, {.module = module}};
  ZoomTarget target{call_of(left, module), call_of(right, module_like(answer, module, bad.pair))};
  // Hits of a parent are not those of the child that showed the error.
  if (glue) target.reference.hit = target.candidate.hit = -1;
  return target;
}

CompareAnswer compared(const ZoomQuestion& question, const fs::path& home) {
  CompareQuestion asked;
  asked.reference = question.reference;
  asked.candidate = question.candidate;
  asked.map = question.map;
  asked.propose = question.propose;
  return answer_to(asked, home);
}

ZoomTarget named_target(const ZoomQuestion& question) {
  const zoom::Call call{question.stage, question.step, question.hit, question.pass};
  ZoomTarget target{call, call};
  if (!question.candidate_stage.empty()) target.candidate.module = question.candidate_stage;
  return target;
}

Json answer_zoom(Service& service, const Json& arguments, CallControl&) {
  const ZoomAnswer found = answer_to(zoom_question_from(arguments), service.home(), true);
  return zoom::json_from(found.answer, found.reference, found.yours);
}

// Breakpoints in a session at the first line that each region names of one side.
Json break_at(Service& service, const Json& regions, const char* side, const std::string& session,
              CallControl& control) {
  Json breakpoints = Json::array();
  std::vector<std::string> known;
  for (const Json& region : regions) {
    if (region[side].empty()) continue;
    const Json& line = region[side].front();
    std::string where = line["file"].get<std::string>() + ":" + std::to_string(line["line"].get<int64_t>());
    if (std::find(known.begin(), known.end(), where) != known.end()) continue;
    Json wanted{{"where", where}};
    if (!session.empty()) wanted["session"] = session;
    breakpoints.push_back(set_breakpoint(service, wanted, control).value("breakpoint", Json::object()));
    known.push_back(std::move(where));
  }
  return breakpoints;
}

// The twin that a session is one side of; nothing where it stands alone.
std::optional<Twin> twin_with(Service& service, const std::string& session) {
  try {
    const Twin twin = Twins(service.home()).find("");
    const std::string id = service.sessions().find(session)->identity().id;
    if (id != twin.reference && id != twin.candidate) return std::nullopt;
    return twin;
  } catch (const Error& error) {
    if (error.code() != Code::kNotFound) throw;
    return std::nullopt;
  }
}

// Stops where zoom points: at the first line of yours in each region, and in a twin session at the reference's too.
Json debug_zoom(Service& service, const Json& arguments, CallControl& control) {
  const std::string session = text_argument(arguments, "session");
  service.sessions().find(session);  // what is wrong with it is said before programs are run again
  const std::optional<Twin> twin = twin_with(service, session);
  const Json found = answer_zoom(service, arguments, control);
  const Json& regions = found["regions"];
  Json out{{"breakpoints", break_at(service, regions, "yours", twin ? twin->candidate : session, control)},
           {"reference_breakpoints",
            twin ? break_at(service, regions, "reference", twin->reference, control) : Json::array()},
           {"note", twin ? "the breakpoints are in both programs of the twin session"
                         : "the breakpoints are in your program; in a twin session the reference stops too"},
           {"zoom", found}};
  return out;
}

std::vector<Argument> zoom_arguments() {
  return {{.name = "reference",
           .help = "the correct run: an id, latest:NAME, or a folder",
           .required = true,
           .positional = true},
          {.name = "candidate", .help = "the run to fix", .required = true, .positional = true},
          {.name = "stage", .help = "the module to trace (default: the first divergence)", .value = "NAME"},
          {.name = "candidate_stage", .help = "its name in the candidate, if different", .value = "NAME"},
          {.name = "step", .type = kInteger, .help = "the denoising step of the call", .value = "N"},
          {.name = "hit", .type = kInteger, .help = "the number of the call in that step, from 0", .value = "N"},
          {.name = "pass", .help = "cond or uncond", .value = "PASS"},
          {.name = "map",
           .help = "JSON file that maps the candidate's names to the reference's",
           .path = true,
           .value = "FILE"}};
}

}  // namespace

ZoomQuestion zoom_question_from(const Json& arguments) {
  ZoomQuestion question;
  question.reference = text_argument(arguments, "reference");
  question.candidate = text_argument(arguments, "candidate");
  question.stage = text_argument(arguments, "stage");
  question.candidate_stage = text_argument(arguments, "candidate_stage");
  question.pass = text_argument(arguments, "pass");
  question.map = text_argument(arguments, "map");
  question.step = arguments.value("step", int64_t{-1});
  question.hit = arguments.value("hit", int64_t{-1});
  return question;
}

namespace {

// The call once more with the reference's inputs in the place of its own, where these differ by more than rounding.
void give_the_references_inputs(ZoomAnswer& out, std::vector<zoom::FedInput>& inputs, const Run& candidate,
                                const zoom::Call& call, const fs::path& home, bool quiet) {
  const auto can = [](const zoom::FedInput& input) { return input.why_not.empty(); };
  if (std::none_of(inputs.begin(), inputs.end(), can)) return;
  try {
    out.yours = zoom::Side(zoom::tape_given(candidate, call, inputs, home, quiet));
  } catch (const Error& error) {
    if (error.code() != Code::kUnsupported && error.code() != Code::kNotFound) throw;
    for (zoom::FedInput& input : inputs)
      if (can(input)) input.why_not = error.what();
    return;
  }
  const std::vector<std::string>& fed = out.yours.tape().fed;
  for (zoom::FedInput& input : inputs)
    if (can(input) && std::find(fed.begin(), fed.end(), input.yours) == fed.end())
      input.why_not = "the program did not take it";
}

ZoomAnswer look_into(const ZoomQuestion& question, const ZoomTarget& target, const fs::path& home, bool quiet) {
  const Run reference = Run::open(question.reference, home), candidate = Run::open(question.candidate, home);
  // The official pipeline in its place would be compared with itself.
  if (zoom::official_in_place_of(candidate))
    fail(Code::kUnsupported, "zoom", "run " + candidate.id() + " is the engine's own: its operations are not traced",
         {.expected = "a program as the candidate; the engine may be the reference",
          .hint = "lockstep zoom " + question.candidate + " " + question.reference});
  // Both at once: most of the time goes into starting them.
  auto theirs = std::async(std::launch::async, [&] { return zoom::tape_of(reference, target.reference, home, quiet); });
  zoom::Tape mine = zoom::tape_of(candidate, target.candidate, home, quiet);
  ZoomAnswer out{zoom::Side(theirs.get()), zoom::Side(std::move(mine)), {}};
  std::vector<zoom::FedInput> inputs = zoom::inputs_to_feed(out.reference, out.yours);
  give_the_references_inputs(out, inputs, candidate, target.candidate, home, quiet);
  double noise = 0;  // of inputs that are the same thing and could not be given
  for (const zoom::FedInput& input : inputs)
    if (!input.why_not.empty() && !input.reference.empty() && input.how != "by its name")
      noise = std::max(noise, input.distance);
  out.answer = zoom::search(out.reference, out.yours, noise);
  out.answer.official_reference = zoom::official_in_place_of(reference).has_value();
  out.answer.inputs = std::move(inputs);
  const size_t asked = std::min(out.answer.regions.size(), kMostCausesAsked);
  for (size_t i = 0; i < asked; ++i) {
    zoom::Region& region = out.answer.regions[i];
    region.cause = zoom::cause_of(region, out.reference, out.yours, out.answer.tolerance);
  }
  return out;
}

// With the reference's inputs the call does what the reference's does, and its own inputs were others: what is wrong
// was done by whoever called it.
bool is_wrong_before(const zoom::Answer& answer) {
  constexpr double kClearly = 1e-2;
  return answer.agrees && std::any_of(answer.inputs.begin(), answer.inputs.end(), [](const zoom::FedInput& input) {
           return input.why_not.empty() && input.distance > kClearly;
         });
}

std::optional<ZoomTarget> caller_of(const ZoomTarget& target, bool pipelines) {
  const auto above = [&](const zoom::Call& call) {
    zoom::Call out{.module = without_last(call.module, 1), .step = call.step, .pass = call.pass};
    if (out.module == call.module) out = {.module = pipelines ? "pipeline" : ""};
    return out;
  };
  if (target.reference.module == "pipeline") return std::nullopt;
  ZoomTarget out{above(target.reference), above(target.candidate)};
  if (out.reference.module.empty() || out.candidate.module.empty()) return std::nullopt;
  return out;
}

}  // namespace

ZoomAnswer answer_to(const ZoomQuestion& question, const fs::path& home, bool quiet) {
  if (!question.stage.empty()) return look_into(question, named_target(question), home, quiet);
  return answer_to(question, compared(question, home), home, quiet);
}

ZoomAnswer answer_to(const ZoomQuestion& question, const CompareAnswer& compared, const fs::path& home, bool quiet) {
  if (!question.stage.empty()) return look_into(question, named_target(question), home, quiet);
  ZoomTarget target = first_divergence(compared);
  const bool pipelines = is_pipeline(compared.reference) && is_pipeline(compared.candidate);
  for (int up = 0;; ++up) {
    ZoomAnswer found = look_into(question, target, home, quiet);
    const std::optional<ZoomTarget> caller = caller_of(target, pipelines);
    if (up >= kMostCallers || !caller || !is_wrong_before(found.answer)) return found;
    target = *caller;
  }
}

std::vector<Operation> zoom_operations() {
  std::vector<Argument> in_a_session = zoom_arguments();
  in_a_session.push_back(session_argument());
  return {
      {.name = "zoom",
       .help = "trace the first call that diverges on both sides, and name the lines to fix",
       .arguments = zoom_arguments(),
       .result = "schema:string call:object agrees:boolean regions:array inputs:array values:object output_error:any "
                 "tolerance:any truncated:boolean uncompiled:boolean official_reference:boolean "
                 "proof:string jump?:object incomplete?:string",
       .slow = true,
       .examples = {"lockstep zoom latest:reference latest:port"},
       .call = &answer_zoom},
      {.name = "debug zoom",
       .help = "zoom, and set breakpoints at the lines it names",
       .arguments = std::move(in_a_session),
       .result = "breakpoints:objects reference_breakpoints:objects note:string zoom:object",
       .slow = true,
       .examples = {"lockstep debug zoom latest:reference latest:port"},
       .call = &debug_zoom},
  };
}

}  // namespace lockstep
