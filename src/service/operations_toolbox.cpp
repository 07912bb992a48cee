// coverage, health, clean, kill-all.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/strict_stream.h"
#include "capture/store.h"
#include "service/groups.h"
#include "service/record_request.h"
#include "service/service.h"
#include "service/toolbox_question.h"
#include "toolbox/coverage.h"
#include "toolbox/profiled_program.h"
#include "toolbox/prune.h"
#include "toolbox/run_health.h"

namespace lockstep {
namespace {

using enum ArgumentType;

// A list, whose items may be lists with commas themselves: --only runs,sessions.
std::vector<std::string> items_of(const Json& arguments, const char* name) {
  std::vector<std::string> items;
  for (const Json& given : arguments.value(name, Json::array())) {
    std::istringstream parts = strict_text(given.get<std::string>());
    for (std::string part; std::getline(parts, part, ',');)
      if (!part.empty()) items.push_back(part);
  }
  return items;
}

Json call_clean(Service& service, const Json& arguments, CallControl&) {
  const CleanPlan plan = plan_clean(service.home(), clean_request_from(arguments));
  if (!arguments["yes"].get<bool>()) return clean_json(service.home(), plan, nullptr);
  const std::vector<StoredItem> removed = remove_items(service.home(), plan.remove);
  return clean_json(service.home(), plan, &removed);
}

Json call_kill_all(Service& service, const Json& arguments, CallControl&) {
  const KillRequest request = kill_request_from(arguments);
  const KillPlan plan = plan_kill(service.home(), request);
  if (!arguments["yes"].get<bool>()) return kill_json(plan, nullptr);
  const EndedProcesses ended = end_processes(plan.end, request.grace_secs);
  return kill_json(plan, &ended);
}

// The run that the caller names, or one that is made now. `make` runs the program.
template <typename Make>
RecordOutcome run_of(Service& service, const Json& arguments, CallControl& control, const char* operation, Make make) {
  const std::string earlier = text_argument(arguments, "run");
  if (!earlier.empty() == arguments.contains("program"))
    fail(Code::kBadInput, operation, earlier.empty() ? "the program is missing" : "both a program and a run are given",
         {.expected = "a program to run, or a run that was made before"});
  if (!earlier.empty()) {
    RecordOutcome outcome;
    outcome.run = Store(service.home()).resolve(earlier);
    outcome.id = outcome.run.filename().string();
    return outcome;
  }
  RecordRequest request = record_request_from(service, arguments, control);
  RecordOutcome outcome = make(request);
  if (control.cancelled()) fail(Code::kCancelled, operation, "cancelled; what ran is in " + outcome.id);
  return outcome;
}

Json call_coverage(Service& service, const Json& arguments, CallControl& control) {
  const RecordOutcome outcome = run_of(service, arguments, control, "coverage", [&](RecordRequest& request) {
    request.record_modules = false;
    request.coverage = arguments["lines"].get<bool>() ? "lines" : "functions";
    return record_program(request);
  });
  const ProgramCoverage coverage = read_coverage(outcome.run);
  if (const std::string page = text_argument(arguments, "html"); !page.empty())
    write_atomically(page, coverage_page(coverage, "Coverage of " + outcome.id));
  if (const std::string list = text_argument(arguments, "markdown"); !list.empty())
    write_atomically(list, coverage_markdown(coverage));
  Json answer = json_from(coverage);
  answer["run"] = outcome.id;
  answer["exit_code"] = outcome.exit_code;
  // Files that were merely imported are thousands, and whoever asks wants to know what ran.
  std::erase_if(answer["files"].get_ref<Json::array_t&>(),
                [](const Json& file) { return file["used"] == Json(false); });
  return answer;
}

Json call_profile(Service& service, const Json& arguments, CallControl& control) {
  const RecordOutcome outcome = run_of(service, arguments, control, "profile", [&](RecordRequest& request) {
    request.functions = text_argument(arguments, "functions");
    return profile_program(request, text_argument(arguments, "evaluate"));
  });
  const ProgramProfile profile = read_profile(outcome.run);
  if (const std::string page = text_argument(arguments, "html"); !page.empty())
    write_atomically(page, profile_page(profile, "Time and memory of " + outcome.id));
  if (const std::string trace = text_argument(arguments, "trace"); !trace.empty())
    write_atomically(trace, chrome_trace(profile));
  Json answer = json_from(profile);
  answer["run"] = outcome.id;
  answer["exit_code"] = outcome.exit_code;
  return answer;
}

Json call_prune(Service& service, const Json& arguments, CallControl& control) {
  PruneRequest request;
  request.program = record_request_from(service, arguments, control);
  request.into = text_argument(arguments, "into");
  request.branch = text_argument(arguments, "branch");
  request.packages = items_of(arguments, "packages");
  request.functions = arguments["functions"].get<bool>();
  request.dry_run = arguments["dry_run"].get<bool>();
  request.tell = [&control, told = 0.0](const std::string& what) mutable { control.progress(told += 1, what); };
  return json_from(prune_program(request));
}

Json call_profile_compare(Service& service, const Json& arguments, CallControl&) {
  const Store store(service.home());
  return json_from(compare_profiles(read_profile(store.resolve(text_argument(arguments, "reference"))),
                                    read_profile(store.resolve(text_argument(arguments, "candidate")))));
}

Json call_limits(Service& service, const Json& arguments, CallControl&) {
  return limits_json(service.home(), text_argument(arguments, "warn"), text_argument(arguments, "refuse"));
}

Json call_health(Service& service, const Json& arguments, CallControl&) {
  const Run run = Run::open(text_argument(arguments, "run"), service.home());
  return json_from(examine_run(run), run);
}

}  // namespace

CleanRequest clean_request_from(const Json& arguments) {
  CleanRequest request;
  request.kinds = items_of(arguments, "only");
  if (const std::string age = text_argument(arguments, "older_than"); !age.empty())
    request.older_than_secs = age_from_text(age);
  request.keep_last = static_cast<size_t>(arguments["keep_last"].get<int64_t>());
  return request;
}

Json clean_json(const fs::path& home, const CleanPlan& plan, const std::vector<StoredItem>* removed) {
  const Store store(home);
  const StoreLimits limits = store.limits();
  Json items = Json::array(), in_use = Json::array();
  uint64_t bytes = 0;
  for (const StoredItem& item : removed ? *removed : plan.remove) {
    items.push_back(json_from(item));
    bytes += item.bytes;
  }
  for (const StoredItem& item : plan.in_use) in_use.push_back(json_from(item));
  return {{"home", home.string()},
          {"removed", removed != nullptr},
          {"items", items},
          {"bytes", bytes},
          {"in_use", in_use},
          {"used_bytes", store.size_bytes()},
          {"warn_bytes", limits.warn_bytes},
          {"refuse_bytes", limits.refuse_bytes}};
}

Json limits_json(const fs::path& home, const std::string& warn, const std::string& refuse) {
  const Store store(home);
  StoreLimits limits = store.limits();
  const auto read = [](const std::string& text, const char* option, uint64_t& into) {
    if (text.empty()) return;
    const std::optional<uint64_t> bytes = bytes_from_text(text);
    if (!bytes)
      fail(Code::kUsage, "limits", std::string(option) + " is not a size",
           {.expected = "such as 20GB", .got = "'" + text + "'"});
    into = *bytes;
  };
  read(warn, "--warn", limits.warn_bytes);
  read(refuse, "--refuse", limits.refuse_bytes);
  if (!warn.empty() || !refuse.empty()) store.set_limits(limits);
  return {{"used_bytes", store.size_bytes()}, {"warn_bytes", limits.warn_bytes}, {"refuse_bytes", limits.refuse_bytes}};
}

KillRequest kill_request_from(const Json& arguments) {
  KillRequest request;
  request.frameworks = items_of(arguments, "frameworks");
  for (const std::string& text : items_of(arguments, "force")) {
    const Json pid = Json::parse(text, nullptr, false);
    if (!pid.is_number_unsigned() || pid.get<uint64_t>() < 2 || pid.get<uint64_t>() > (1U << 22))
      fail(Code::kUsage, "kill-all", "'" + text.substr(0, 40) + "' is not a process number",
           {.expected = "one that --frameworks lists"});
    request.force.push_back(static_cast<pid_t>(pid.get<uint64_t>()));
  }
  if (!request.force.empty() && request.frameworks.empty())
    fail(Code::kUsage, "kill-all", "--force ends processes that --frameworks lists",
         {.expected = "--frameworks as well", .hint = "--frameworks torch"});
  request.grace_secs = arguments["grace"].get<double>();
  return request;
}

KillPlan plan_kill(const fs::path& home, const KillRequest& request) {
  KillPlan plan;
  plan.programs = started_programs(home);
  for (const StartedProgram& program : plan.programs)
    for (const ProcessFacts& process : all_processes(program)) plan.end.push_back(process);
  const auto planned = [&](pid_t pid) {
    return std::any_of(plan.end.begin(), plan.end.end(), [&](const ProcessFacts& p) { return p.pid == pid; });
  };
  if (!request.frameworks.empty())
    for (FrameworkProcess& other : processes_with(request.frameworks))
      if (!planned(other.process.pid)) plan.others.push_back(std::move(other));
  for (const pid_t pid : request.force) {
    const auto found = std::find_if(plan.others.begin(), plan.others.end(),
                                    [&](const FrameworkProcess& other) { return other.process.pid == pid; });
    if (found == plan.others.end())
      fail(Code::kNotFound, "kill-all",
           fmt::format("process {} is not yours, has ended, or has none of these frameworks loaded", pid),
           {.hint = "lockstep kill-all --dry-run --frameworks torch,mlx,jax"});
    plan.end.push_back(found->process);
  }
  return plan;
}

Json kill_json(const KillPlan& plan, const EndedProcesses* ended) {
  Json programs = Json::array(), others = Json::array();
  for (const StartedProgram& program : plan.programs) programs.push_back(json_from(program));
  for (const FrameworkProcess& other : plan.others) others.push_back(json_from(other));
  Json json{{"programs", programs}, {"others", others}, {"done", ended != nullptr}};
  json.update(json_from(ended ? *ended : EndedProcesses()));
  return json;
}

std::vector<Operation> toolbox_operations() {
  const auto program_or_run = [](const char* earlier) {
    std::vector<Argument> arguments = program_arguments();
    arguments[0].required = false;
    arguments.push_back({.name = "run", .help = earlier});
    return arguments;
  };
  std::vector<Argument> coverage_arguments =
      program_or_run("in place of a program: a run that was made with coverage before");
  for (Argument& argument :
       std::vector<Argument>{{.name = "lines", .type = kBool, .help = "also count lines", .standard = false},
                             {.name = "markdown", .help = "also write it as Markdown", .path = true},
                             {.name = "html", .help = "also write it as an HTML page", .path = true}})
    coverage_arguments.push_back(std::move(argument));
  std::vector<Argument> profile_arguments = program_or_run("in place of a program: a run that was profiled before");
  for (Argument& argument : std::vector<Argument>{
           {.name = "evaluate",
            .help = "where to evaluate MLX, so that time is attributed correctly",
            .standard = "stages",
            .choices = {"stages", "modules", "none"}},
           {.name = "functions", .help = "also time plain functions of these Python modules (globs, comma separated)"},
           {.name = "html", .help = "write one HTML page with a flame graph and the memory over time", .path = true},
           {.name = "trace", .help = "write it in Chrome's trace format", .path = true}})
    profile_arguments.push_back(std::move(argument));
  std::vector<Argument> prune_arguments = program_arguments();
  for (Argument& argument : std::vector<Argument>{
           {.name = "into",
            .help = "create the copy here; the folder must not exist yet",
            .path = true,
            .value = "FOLDER"},
           {.name = "branch", .help = "create a new branch in the git checkout of the packages"},
           {.name = "packages", .type = kTextList, .help = "packages to prune (default: those with parts of a model)"},
           {.name = "functions",
           .type = kBool,
           .help = "also remove the bodies of functions that never ran",
           .standard = false},
           {.name = "dry_run", .type = kBool, .help = "only show what would be kept", .standard = false}})
    prune_arguments.push_back(std::move(argument));
  return {
      {.name = "prune",
       .help = "copy only the code of its packages that a Python program runs, and verify the copy",
       .arguments = prune_arguments,
       .result = "schema:string dry_run:boolean packages:objects lines_before:integer lines_after:integer "
                 "rounds:integer restored:array left_links:array tensors_equal:integer output_equal:boolean "
                 "reference_run:string candidate_run:string files:objects into?:string branch?:string commit?:string",
       .slow = true,
       .examples = {"lockstep prune --into pruned -- python generate.py"},
       .call = &call_prune},
      {.name = "profile",
       .help = "run a Python program and show where its time and memory go, by stage and module",
       .arguments = profile_arguments,
       .result = "schema:string run:string exit_code:integer processes:integer frameworks:array wall_secs:number "
                 "cpu_secs:number first_step_secs?:number evaluation_secs:number evaluation_share:number "
                 "evaluations:integer memory:string peak_bytes:integer calls:integer left_out:integer stages:objects "
                 "modules:objects",
       .slow = true,
       .examples = {"lockstep profile -- python generate.py"},
       .call = &call_profile},
      {.name = "profile compare",
       .help = "compare two profiles: which stages of the port are slower or larger",
       .arguments =
           {{.name = "reference",
             .help = "a profiled run: id, unique prefix, latest:NAME, or a path",
             .required = true,
             .positional = true},
            {.name = "candidate", .help = "the profile to compare with it", .required = true, .positional = true}},
       .result = "reference:object candidate:object stages:objects modules:objects",
       .reads = true,
       .slow = true,
       .examples = {"lockstep profile compare latest:reference latest:port"},
       .call = &call_profile_compare},
      {.name = "coverage",
       .help = "run a Python program and show which files, functions and lines ran",
       .arguments = coverage_arguments,
       .result = "schema:string run:string exit_code:integer processes:integer lines:boolean components:objects "
                 "packages:objects files:objects like_named:objects",
       .slow = true,
       .examples = {"lockstep coverage -- python generate.py"},
       .call = &call_coverage},
      {.name = "runs health",  // not "health": /v1/health is the service's own
       .help = "check a single run: NaN, overflow, constant, dead and equal values, lost precision",
       .arguments = {{.name = "run",
                      .help = "id, unique prefix, latest, latest:NAME, or a path",
                      .required = true,
                      .positional = true}},
       .result = "run:string records:integer looked_into:integer healthy:boolean findings:objects "
                 "attention:objects",
       .reads = true,
       .slow = true,
       .examples = {"lockstep health latest"},
       .call = &call_health},
      {.name = "runs limits",
       .help = "show or set how large the store may grow",
       .arguments = {{.name = "warn", .help = "warn beyond this size, such as 1GB"},
                     {.name = "refuse", .help = "store no more full tensors beyond this size, such as 10GB"}},
       .result = "used_bytes:integer warn_bytes:integer refuse_bytes:integer",
       .examples = {"lockstep runs limits", "lockstep runs limits --warn 1GB --refuse 10GB"},
       .call = &call_limits},
      {.name = "clean",
       .help = "show the size of old runs, sessions and leftovers, and remove them",
       .arguments = {{.name = "only",
                      .type = kTextList,
                      .help = "runs, archive, sessions, saved, leftovers (default: all but saved)",
                      .value = "KINDS"},
                     {.name = "older_than", .help = "only older items, such as 12h, 7d or 4w", .value = "AGE"},
                     {.name = "keep_last",
                      .type = kInteger,
                      .help = "keep the newest N of each name",
                      .standard = 0,
                      .least = 0,
                      .most = 1e9,
                      .value = "N"},
                     {.name = "yes", .type = kBool, .help = "remove without asking", .standard = false}},
       .result = "home:string removed:boolean items:objects bytes:integer in_use:objects used_bytes:integer "
                 "warn_bytes:integer refuse_bytes:integer",
       .slow = true,
       .examples = {"lockstep clean", "lockstep clean --older-than 7d --keep-last 2 --yes"},
       .call = &call_clean},
      {.name = "kill-all",
       .help = "end programs started by Lockstep that are still running",
       .arguments = {{.name = "frameworks",
                      .type = kTextList,
                      .help = "also list your other processes that have torch, mlx or jax loaded",
                      .value = "NAMES"},
                     {.name = "force",
                      .type = kTextList,
                      .help = "also end these listed processes, by process id",
                      .value = "PID"},
                     {.name = "grace",
                      .type = kNumber,
                      .help = "seconds between SIGTERM and SIGKILL",
                      .standard = 3,
                      .least = 0,
                      .most = 600,
                      .value = "SECS"},
                     {.name = "yes", .type = kBool, .help = "end them without asking", .standard = false}},
       .result = "programs:objects others:objects done:boolean ended:array killed:array left:array",
       .slow = true,
       .examples = {"lockstep kill-all --dry-run", "lockstep kill-all --frameworks torch,mlx --force 4711 --yes"},
       .call = &call_kill_all},
  };
}

}  // namespace lockstep
