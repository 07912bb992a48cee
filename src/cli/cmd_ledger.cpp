#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "capture/recorded_program.h"
#include "capture/run_reader.h"
#include "cli/app.h"
#include "cli/terminal.h"
#include "compare/ledger.h"
#include "compare/substitutes.h"
#include "report/html_report.h"

namespace lockstep {
namespace {

struct LedgerArguments {
  std::string reference, only, map, python, report;
  std::vector<std::string> argv;
  bool inputs = false, all = false;
};

RunView open_run(const std::string& spec, const fs::path& home) {
  return view_of(std::make_shared<const Run>(Run::open(spec, home)));
}

void run_ledger(App& app, const LedgerArguments& arguments) {
  RecordRequest request;
  request.home = home_folder(app.global.home);
  // Resolved now: "latest" would otherwise mean the run that is about to begin.
  const RunView reference = open_run(arguments.reference, request.home);
  const fs::path reference_path = Run::open(arguments.reference, request.home).path();
  const std::vector<MapRule> map = arguments.map.empty() ? std::vector<MapRule>() : read_map(arguments.map);
  request.argv = arguments.argv;
  request.python = arguments.python;
  request.inputs = arguments.inputs;
  request.tap = arguments.only;
  request.output_to_stderr = app.global.json;
  request.quiet = app.global.quiet;
  const auto run = [&](const char* name) {
    request.name = name;
    const RecordOutcome outcome = record_program(request);
    if (outcome.exit_code != 0)
      fail(Code::kIo, "ledger", fmt::format("the program ended with status {}", outcome.exit_code),
           {.expected = "a program that runs to its end",
            .hint = fmt::format("lockstep compare {} {}, which judges what it recorded before", arguments.reference,
                                outcome.run.string())});
    return outcome.run.string();
  };
  const std::string as_it_is = run("ledger-as-it-is");
  const RunView candidate = open_run(as_it_is, request.home);
  request.reference = fs::absolute(reference_path).string();
  request.substitute = arguments.only.empty() ? "*" : arguments.only;
  std::optional<Substitutes> renamed;  // it has run once: its names, steps and layouts are known
  if (!map.empty()) request.reference = renamed.emplace(reference, candidate, map, request.home).path().string();
  const std::string substituted = run("ledger-substituted");
  Ledger ledger = make_ledger(reference, candidate, open_run(substituted, request.home), map);
  if (renamed) ledger.notes.insert(ledger.notes.end(), renamed->notes().begin(), renamed->notes().end());
  if (ledger.entries.empty())
    fail(Code::kBadInput, "ledger", "no tensor was recorded in all three runs",
         {.expected = "a program that uses our checkpoints, hooks or taps, under the reference's names",
          .hint = "--map FILE; lockstep compare shows what is unpaired, and --propose-map writes such a file"});
  if (!arguments.report.empty()) {
    CompareOptions options;
    options.only = arguments.only;
    options.map = map;
    write_html_report(arguments.report, compare_runs(reference, candidate, options), reference, candidate, &ledger);
  }
  if (app.global.json) {
    Json out = json_from(ledger);
    out["runs"] = {{"as_it_is", as_it_is}, {"substituted", substituted}};
    print_json(out);
  } else {
    print("{}", text_from(ledger, arguments.all, Terminal(app.global).color()));
  }
  app.status = ledger.sources.empty() ? 0 : 1;
}

}  // namespace

void add_ledger(App& app) {
  CLI::App* command = app.cli.add_subcommand(
      "ledger", "run a candidate unchanged and on the reference's tensors, to find the stages that create the error");
  command->footer(
      "lockstep ledger latest:reference -- python my_port.py\nlockstep ledger reference.run --inputs -- python "
      "my_port.py --steps 2");
  auto arguments = std::make_shared<LedgerArguments>();
  command->add_option("REFERENCE", arguments->reference, "the correct run: an id, latest:NAME, or a folder")
      ->required();
  command->add_option("PROGRAM", arguments->argv, "after --: the program and its arguments")->required();
  command->add_option("--only", arguments->only, "record and replace only these names")->type_name("GLOB");
  command->add_option("--map", arguments->map, "JSON file that maps the program's names to the reference's")
      ->type_name("FILE");
  command->add_option("--python", arguments->python, "the Python that runs a .py file (default python3)")
      ->type_name("FILE");
  command->add_flag("--inputs", arguments->inputs, "include the inputs of modules in the ledger");
  command->add_flag("--all", arguments->all, "show every stage");
  command->add_option("--report", arguments->report, "write a self-contained page")->type_name("OUT.html");
  command->callback([&app, arguments] { run_ledger(app, *arguments); });
}

}  // namespace lockstep
