// record, runs list, runs show, tensors list, info, show, diff: the same functions as the command line's.
#include <fmt/format.h>

#include <chrono>

#include "base/error.h"
#include "base/names.h"
#include "capture/recorded_program.h"
#include "debugger/child_process.h"
#include "measure/metrics_json.h"
#include "service/groups.h"
#include "service/record_request.h"
#include "service/run_json.h"
#include "service/service.h"
#include "service/tensor_pick.h"
#include "toolbox/run_health.h"

namespace lockstep {
namespace {

using enum ArgumentType;

constexpr int64_t kMostValues = 10000;

// Items [from, from + limit) of a list, and how to get the rest. What one looks like is asked for those alone.
template <typename Items, typename Told>
Json page(const Json& arguments, const char* name, const Items& items, const Told& told) {
  const size_t from = std::min(static_cast<size_t>(arguments["from"].get<int64_t>()), items.size());
  const size_t to = std::min(from + static_cast<size_t>(arguments["limit"].get<int64_t>()), items.size());
  Json out{{name, Json::array()}, {"total", items.size()}, {"from", from}};
  for (size_t i = from; i < to; ++i) out[name].push_back(told(items[i]));
  if (to < items.size()) out["next_from"] = to;
  return out;
}

Json runs_list(Service& service, const Json& arguments, CallControl&) {
  const Store store(service.home());
  Json out = page(arguments, "runs", store.list(), &run_entry);
  out["home"] = store.home().string();
  return out;
}

Json runs_show(Service& service, const Json& arguments, CallControl&) {
  const std::shared_ptr<const Run> run = service.opened().run(text_argument(arguments, "run"));
  std::vector<const Record*> records;
  const std::string only = text_argument(arguments, "only");
  for (const Record& record : run->records())
    if (only.empty() || glob_match(only, record.key.name)) records.push_back(&record);
  Json out = run_json(*run);
  out.update(page(arguments, "records", records, [](const Record* one) { return record_json(*one); }));
  return out;
}

Json tensors_list(Service&, const Json& arguments, CallControl&) {
  const auto source = open_tensors(text_argument(arguments, "path"));
  return page(arguments, "tensors", select_tensors(*source, text_argument(arguments, "name")),
              [](const TensorInfo* info) { return json_from(*info); });
}

Json tensors_info(Service&, const Json& arguments, CallControl&) {
  const auto source = open_tensors(text_argument(arguments, "path"));
  const TensorInfo& info = select_one(*source, text_argument(arguments, "name"));
  const Tensor tensor = load_selected(*source, info, text_argument(arguments, "slice"));
  Json out = json_from(info);
  out["stats"] = json_from(tensor_statistics(tensor));
  return out;
}

Json tensors_show(Service&, const Json& arguments, CallControl&) {
  const auto source = open_tensors(text_argument(arguments, "path"));
  const TensorInfo& info = select_one(*source, text_argument(arguments, "name"));
  const Tensor tensor = load_selected(*source, info, text_argument(arguments, "slice"));
  if (tensor.numel() > kMostValues)
    fail(Code::kBadInput, "tensors show", fmt::format("{} values are too many for one answer", tensor.numel()),
         {.expected = fmt::format("at most {}", kMostValues), .hint = "a slice such as [0, :8, :8], or tensors info"});
  return {{"name", info.name},
          {"slice", text_argument(arguments, "slice")},
          {"dtype", dtype_name(tensor.dtype())},
          {"shape", tensor.shape()},
          {"values", values_json(tensor)}};
}

Json tensors_diff(Service&, const Json& arguments, CallControl& control) {
  const std::optional<Tolerance> tolerance = parse_tolerance(text_argument(arguments, "tolerance"));
  const auto reference = open_tensors(text_argument(arguments, "reference")),
             candidate = open_tensors(text_argument(arguments, "candidate"));
  const std::string pattern = text_argument(arguments, "name"), slice = text_argument(arguments, "slice");
  std::vector<Json> results;
  Json missing = Json::array();
  size_t different = 0;
  const bool one_each = pattern.empty() && reference->tensors().size() == 1 && candidate->tensors().size() == 1;
  for (const TensorInfo* info : select_tensors(*reference, pattern)) {
    if (control.cancelled()) fail(Code::kCancelled, "tensors diff", "cancelled");
    const TensorInfo* other = one_each ? &candidate->tensors()[0] : candidate->find(info->name);
    if (!other) {
      missing.push_back(info->name);
      continue;
    }
    const TensorComparison comparison =
        compare_tensors(load_selected(*reference, *info, slice), load_selected(*candidate, *other, slice), tolerance);
    different += !comparison.match();
    Json result{{"name", info->name}};
    result.update(json_from(comparison));
    results.push_back(std::move(result));
  }
  if (results.empty()) fail(Code::kBadInput, "tensors diff", "nothing was compared: no tensor name is in both");
  Json out{{"verdict", different == 0 && missing.empty() ? "match" : "mismatch"},
           {"compared", results.size()},
           {"different", different},
           {"only_reference", std::move(missing)}};
  out.update(page(arguments, "tensors", results, [](const Json& one) { return one; }));
  return out;
}

Json record(Service& service, const Json& arguments, CallControl& control) {
  RecordRequest request = record_request_from(service, arguments, control);
  request.modules = text_argument(arguments, "modules");
  request.stats_only = arguments["stats_only"].get<bool>();
  request.inputs = arguments["inputs"].get<bool>();
  request.reference = text_argument(arguments, "reference");
  request.substitute = text_argument(arguments, "substitute");
  if (request.substitute.empty() != request.reference.empty())
    fail(Code::kBadInput, "record", "reference and substitute go together",
         {.expected = "the run that tensors are taken from, and a glob of their names"});
  if (arguments["coverage"].get<bool>()) request.coverage = "functions";
  const bool health = arguments["health"].get<bool>();
  if (health) {
    if (request.environment.empty()) request.environment = current_environment();
    request.environment["LOCKSTEP_HEALTH"] = "1";
  }
  const RecordOutcome outcome = record_program(request);
  if (control.cancelled()) fail(Code::kCancelled, "record", "cancelled; what was recorded is in " + outcome.id);
  Json answer{{"run", outcome.id},
              {"path", outcome.run.string()},
              {"status", outcome.status},
              {"exit_code", outcome.exit_code},
              {"records", outcome.records}};
  if (health && outcome.records > 0) {
    const Run run = Run::open_path(outcome.run);
    answer["health"] = json_from(examine_run(run), run);
  }
  return answer;
}

std::vector<Argument> with_page(std::vector<Argument> arguments) {
  arguments.push_back({.name = "limit",
                       .type = kInteger,
                       .help = "maximum number of items",
                       .standard = 50,
                       .least = 1,
                       .most = 10000});
  arguments.push_back({.name = "from",
                       .type = kInteger,
                       .help = "number of the first item, from 0",
                       .standard = 0,
                       .least = 0,
                       .most = 1e12});
  return arguments;
}

}  // namespace

RecordRequest record_request_from(Service& service, const Json& arguments, CallControl& control) {
  RecordRequest request;
  request.home = service.home();
  request.argv = arguments["program"].get<std::vector<std::string>>();
  if (request.argv.empty()) fail(Code::kBadInput, "record", "the program is missing");
  request.name = text_argument(arguments, "name");
  request.python = text_argument(arguments, "python");
  request.quiet = true;  // it is in output.log
  // The program runs in the caller's folder: a shell-free way to say so without changing our own.
  if (arguments.contains("cwd")) request.cwd = text_argument(arguments, "cwd");
  if (arguments.contains("whole_environment"))
    request.environment = arguments["whole_environment"].get<std::map<std::string, std::string>>();
  request.cancelled = [&control, began = std::chrono::steady_clock::now(), most = arguments["timeout"].get<double>(),
                       told = 0.0]() mutable {
    const double secs = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (secs >= told + 1) control.progress(told = secs, "the program is running");
    return secs > most || control.cancelled();
  };
  return request;
}

std::vector<Argument> program_arguments() {
  return {{.name = "program",
           .type = kTextList,
           .help = "the program and its arguments; a .py file is run with Python",
           .required = true},
          {.name = "name", .help = "name of the run (default: the script's)"},
          {.name = "python", .help = "the Python that runs a .py file"},
          {.name = "cwd", .help = "folder to run in", .path = true},
          {.name = "timeout",
           .type = kNumber,
           .help = "end the program after this many seconds",
           .standard = 3600,
           .least = 0.001,
           .most = 86400},
          {.name = "whole_environment", .type = kTextMap, .help = "the environment in place of the service's own"}};
}

std::vector<Operation> recorded_operations() {
  const auto with_program = [](std::vector<Argument> more) {
    std::vector<Argument> all = program_arguments();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Argument path{.name = "path",
                      .help = "a .npy, .npz, .safetensors or torch file, a checkpoint, or a folder of such files",
                      .required = true,
                      .path = true};
  const Argument name{.name = "name", .help = "a tensor's name, or a glob"};
  const Argument slice{.name = "slice", .help = "NumPy-like: [0, :, -1, ::2]"};
  return {
      {.name = "record",
       .help = "run a Python program and record its torch and MLX modules, without source changes",
       .arguments = with_program(
           {{.name = "modules",
             .help = "record only matching modules (globs, comma separated; with or without the component's name)"},
            {.name = "stats_only", .type = kBool, .help = "store statistics only", .standard = false},
            {.name = "inputs", .type = kBool, .help = "also record the inputs of modules", .standard = false},
            {.name = "coverage",
             .type = kBool,
             .help = "also count calls of every function, for `coverage` of this run",
             .standard = false},
            {.name = "health",
             .type = kBool,
             .help = "report anomalies in the run, like runs health",
             .standard = false},
            {.name = "reference", .help = "a run whose tensors `substitute` takes: an id, latest:NAME or a path"},
            {.name = "substitute", .help = "continue with the reference's values for these names (a glob)"}}),
       .result = "run:string path:string status:string exit_code:integer records:integer health?:object",
       .slow = true,
       .examples = {"lockstep record -- generate.py"},
       .call = &record},
      {.name = "runs list",
       .help = "list recorded runs, newest first",
       .arguments = with_page({}),
       .result = "runs:objects total:integer from:integer next_from?:integer home:string",
       .reads = true,
       .examples = {"lockstep runs list"},
       .call = &runs_list},
      {.name = "runs show",
       .help = "show a run: program, settings, records",
       .arguments =
           with_page({{.name = "run", .help = "id, unique prefix, latest, latest:NAME, or a path", .required = true},
                      {.name = "only", .help = "glob of record names"}}),
       .result = "run:object path:string summary:object records:objects total:integer from:integer next_from?:integer",
       .reads = true,
       .examples = {"lockstep runs show latest"},
       .call = &runs_show},
      {.name = "tensors list",
       .help = "list names, dtypes, shapes and sizes of the tensors in a file or folder",
       .arguments = with_page({path, name}),
       .result = "tensors:objects total:integer from:integer next_from?:integer",
       .reads = true,
       .examples = {"lockstep tensors list model.safetensors"},
       .call = &tensors_list},
      {.name = "tensors info",
       .help = "show where a tensor is stored, and its statistics",
       .arguments = {path, name, slice},
       .result = "name:string dtype:string shape:array stats:object bytes:integer file:string",
       .reads = true,
       .slow = true,
       .examples = {"lockstep tensors info latents.npy"},
       .call = &tensors_info},
      {.name = "tensors show",
       .help = "show the values of a tensor or a slice of it",
       .arguments = {path, name, slice},
       .result = "name:string slice:string dtype:string shape:array values:any",
       .reads = true,
       .examples = {"lockstep tensors show latents.npy '[0, :, -1, ::2]'"},
       .call = &tensors_show},
      {.name = "tensors diff",
       .help = "compare the tensors of two files or folders, one by one",
       .arguments =
           with_page({{.name = "reference", .help = "the correct file or folder", .required = true, .path = true},
                      {.name = "candidate", .help = "the file or folder to check", .required = true, .path = true},
                      name,
                      slice,
                      {.name = "tolerance",
                       .help = "default, exact, identical, high, acceptable, suspect, ABS or ABS,REL",
                       .standard = "default"}}),
       .result =
           "verdict:string compared:integer different:integer tensors:objects only_reference:strings total:integer",
       .reads = true,
       .slow = true,
       .examples = {"lockstep tensors diff reference.npy candidate.npy"},
       .call = &tensors_diff},
  };
}

}  // namespace lockstep
