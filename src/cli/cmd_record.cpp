#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "capture/recorded_program.h"
#include "cli/app.h"

namespace lockstep {

void add_record(App& app) {
  CLI::App* command = app.cli.add_subcommand(
      "record", "run a Python program with its torch and MLX modules recorded; no source is edited");
  command->footer(
      "lockstep record -- python my_port.py --steps 2\n"
      "lockstep record --name port --modules 'transformer.*' --steps 0,5-9 -- my_port.py");
  auto request = std::make_shared<RecordRequest>();
  command->add_option("--name", request->name, "name of the run (default: the script's)");
  command->add_option(
      "--modules", request->modules,
      "record only modules that match (globs, comma separated; with their component's name or without)");
  command->add_option("--tap", request->tap, "record only tensors that match");
  command->add_option("--no-tap", request->no_tap, "leave these out");
  command->add_option("--steps", request->steps, "denoising steps to record, such as 0,5-9");
  command->add_flag("--inputs", request->inputs, "record the inputs of modules too");
  command->add_flag("--stats-only", request->stats_only, "keep no full tensors");
  command->add_option("--full", request->full, "keep exactly these in full, whatever the budget");
  command->add_option("--budget", request->budget, "bytes of full tensors to keep, such as 500MB (default 2 GB)");
  command->add_option("--reference", request->reference, "a run whose values --substitute takes");
  command->add_option("--substitute", request->substitute, "go on with the reference's values for these names");
  command->add_option("--python", request->python, "the Python that runs a .py file (default python3)");
  command->add_option("program", request->argv, "after --: the program and its arguments")->required();
  command->positionals_at_end();
  command->callback([&app, request] {
    if (!request->substitute.empty() && request->reference.empty())
      fail(Code::kUsage, "record", "--substitute without a run to take tensors from", {.hint = "--reference RUN"});
    request->home = home_folder(app.global.home);
    request->output_to_stderr = app.global.json;
    request->quiet = app.global.quiet;
    request->or_unrecorded = true;
    const RecordOutcome outcome = record_program(*request);
    if (app.global.json) {
      Json told{{"run", outcome.id},
                {"path", outcome.run.string()},
                {"status", outcome.status},
                {"exit_code", outcome.exit_code},
                {"records", outcome.records}};
      if (!outcome.not_recorded.empty()) told["not_recorded"] = outcome.not_recorded;
      fmt::print("{}\n", told.dump());
    }
    if (!outcome.not_recorded.empty()) {
      if (!app.global.quiet)
        fmt::print(stderr, "lockstep: nothing was recorded of the program, which {}: {}\n",
                   outcome.status == "killed" ? "was killed" : outcome.status, outcome.not_recorded);
      app.status = outcome.exit_code;  // there is nothing of ours to report on
      return;
    }
    if (!app.global.json && !app.global.quiet)
      fmt::print(stderr, "lockstep: run {} {}, {} records in {}\n", outcome.id, outcome.status, outcome.records,
                 outcome.run.string());
    if (outcome.records == 0 && !app.global.quiet)
      fmt::print(
          stderr,
          "lockstep: the program recorded nothing; expected calls of torch or MLX modules, or checkpoints, within the "
          "filters, in a Python that reads PYTHONPATH (not python -I or -E)\n");
    if (outcome.exit_code != 0) app.status = exit_status(Code::kIo);
  });
}

}  // namespace lockstep
