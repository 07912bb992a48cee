#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "capture/recorded_program.h"
#include "capture/run_reader.h"
#include "cli/app.h"
#include "cli/health_text.h"
#include "compare/substitutes.h"
#include "debugger/child_process.h"

namespace lockstep {
namespace {

// With a map: the reference under the program's names.
std::unique_ptr<const Substitutes> renamed_reference(const RecordRequest& request, const std::string& map, bool quiet) {
  if (map.empty()) return nullptr;
  if (request.substitute.empty())
    fail(Code::kUsage, "record", "--map says whose tensors are whose, and none is to be replaced",
         {.hint = "--reference RUN --substitute GLOB"});
  const RunView reference = view_of(std::make_shared<const Run>(Run::open(request.reference, request.home)));
  auto made = std::make_unique<const Substitutes>(reference, read_map(map), request.home);
  for (const std::string& note : made->notes())
    if (!quiet) print_error("lockstep: {}\n", note);
  return made;
}

std::string words_about_ranks(const RecordOutcome& outcome) {
  if (outcome.failed_rank) return fmt::format(" (rank {} of {} first)", *outcome.failed_rank, outcome.world);
  return outcome.world > 0 ? fmt::format(" on {} ranks", outcome.world) : "";
}

}  // namespace

void add_record(App& app) {
  CLI::App* command = app.cli.add_subcommand(
      "record", "run a Python program and record its torch, MLX, Flax and tinygrad modules, without source changes");
  command->footer(
      "lockstep record -- python my_port.py --steps 2\n"
      "lockstep record --name port --modules 'transformer.*' --steps 0,5-9 -- my_port.py\n"
      "lockstep record --inputs --functions 'mflux.models.qwen.*' -- my_port.py");
  auto request = std::make_shared<RecordRequest>();
  auto map = std::make_shared<std::string>();
  command->add_option("--name", request->name, "name of the run (default: the script's)");
  command->add_option("--modules", request->modules,
                      "record only matching modules (globs, comma separated; with or without the component's name)");
  command->add_option("--functions", request->functions,
                      "also record plain functions of these modules or files, such as 'mflux.models.qwen.*'");
  command->add_option("--tap", request->tap, "record only matching tensors");
  command->add_option("--no-tap", request->no_tap, "do not record these");
  command->add_option("--steps", request->steps, "denoising steps to record, such as 0,5-9");
  command->add_flag("--inputs", request->inputs, "also record the inputs of modules");
  command->add_option("--operations", request->operations,
                      "trace every operation inside the calls of these modules (globs), for lockstep zoom");
  command->add_option("--operations-at", request->operations_at,
                      "only in this call, as STEP:HIT:PASS; each part may be empty");
  command->add_flag("--stats-only", request->stats_only, "store statistics only");
  command->add_flag_callback(
      "--coverage", [request] { request->coverage = "functions"; },
      "also count calls of every function, for lockstep coverage --run");
  auto health = std::make_shared<bool>(false);
  command->add_flag("--health", *health, "check the run at the end, as lockstep health does");
  command->add_option("--full", request->full, "store exactly these in full, whatever the budget");
  command->add_option("--budget", request->budget, "storage for full tensors, such as 500MB (default 2 GB)");
  command->add_option("--reference", request->reference, "a run whose values --substitute takes");
  command->add_option("--substitute", request->substitute, "continue with the reference's values for these names");
  command->add_option("--map", *map, "JSON file that maps the program's names to the reference's, for --substitute")
      ->type_name("FILE");
  command->add_option("--python", request->python, "the Python that runs a .py file (default python3)");
  command->add_option("program", request->argv, "after --: the program and its arguments")->required();
  command->positionals_at_end();
  command->callback([&app, request, map, health] {
    if (!request->substitute.empty() && request->reference.empty())
      fail(Code::kUsage, "record", "--substitute without a run to take tensors from", {.hint = "--reference RUN"});
    request->home = home_folder(app.global.home);
    const auto renamed = renamed_reference(*request, *map, app.global.quiet);
    if (renamed) request->reference = renamed->path().string();
    request->output_to_stderr = app.global.json;
    request->quiet = app.global.quiet;
    request->or_unrecorded = true;
    if (*health) {
      request->environment = current_environment();
      request->environment["LOCKSTEP_HEALTH"] = "1";
    }
    const RecordOutcome outcome = record_program(*request);
    if (app.global.json) {
      Json told{{"run", outcome.id},
                {"path", outcome.run.string()},
                {"status", outcome.status},
                {"exit_code", outcome.exit_code},
                {"records", outcome.records}};
      if (outcome.world > 0) told["world"] = outcome.world;
      if (outcome.failed_rank) told["failed_rank"] = *outcome.failed_rank;
      if (!outcome.not_recorded.empty()) told["not_recorded"] = outcome.not_recorded;
      print_json(told);
    }
    if (!outcome.not_recorded.empty()) {
      if (!app.global.quiet)
        print_error("lockstep: nothing was recorded of the program, which {}: {}\n",
                    outcome.status == "killed" ? "was killed" : outcome.status, outcome.not_recorded);
      app.status = outcome.exit_code;
      return;
    }
    if (!app.global.json && !app.global.quiet)
      print_error("lockstep: run {} {}{}, {} records in {}\n", outcome.id, outcome.status, words_about_ranks(outcome),
                  outcome.records, outcome.run.string());
    if (outcome.records == 0 && !app.global.quiet)
      print_error(
          "lockstep: the program recorded nothing; expected calls of torch or MLX modules, or checkpoints, within the "
          "filters, in a Python that reads PYTHONPATH (not python -I or -E)\n");
    if (*health && outcome.records > 0) {
      const Run run = Run::open_path(outcome.run);
      print_error(text_from(examine_run(run), run));
    }
    app.status = outcome.exit_code;
  });
}

}  // namespace lockstep
