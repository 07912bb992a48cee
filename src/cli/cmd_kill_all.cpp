// lockstep kill-all: end what Lockstep has started and what still runs.
#include <fmt/format.h>

#include <memory>

#include "base/text.h"
#include "capture/store.h"
#include "cli/app.h"
#include "cli/operation_options.h"
#include "cli/question.h"
#include "cli/table.h"
#include "service/service.h"
#include "service/toolbox_question.h"

namespace lockstep {
namespace {

void print_plan(const Terminal& terminal, const KillPlan& plan) {
  if (!plan.programs.empty()) {
    Table table({{"process", Table::Align::kRight},
                 {"children", Table::Align::kRight},
                 {"started as"},
                 {"command", Table::Align::kLeft, true}});
    for (const StartedProgram& program : plan.programs)
      table.add({std::to_string(program.process.pid), std::to_string(program.children.size()),
                 Text::of("{} {}", program.kind, program.id), program.process.command});
    print(table.text(terminal));
  }
  if (plan.others.empty()) return;
  print("{}not started by Lockstep (named with --force, they are ended too):\n", plan.programs.empty() ? "" : "\n");
  Table table({{"process", Table::Align::kRight}, {"has loaded"}, {"command", Table::Align::kLeft, true}});
  for (const FrameworkProcess& other : plan.others)
    table.add({std::to_string(other.process.pid), joined(other.frameworks, ", "), other.process.command});
  print(table.text(terminal));
}

void run_kill_all(App& app, const Json& arguments, bool dry_run) {
  const KillRequest request = kill_request_from(arguments);
  const KillPlan plan = plan_kill(home_folder(app.global.home), request);
  if (!app.global.json) print_plan(Terminal(app.global), plan);
  const bool nothing = plan.end.empty();
  const bool ends =
      !nothing && !dry_run &&
      (arguments["yes"].get<bool>() || (!app.global.json && agreed(Text::of("End {} processes?", plan.end.size()))));
  EndedProcesses ended;
  if (ends) ended = end_processes(plan.end, request.grace_secs);
  if (!ended.left.empty()) app.status = 3;
  if (app.global.json) {
    print_json(kill_json(plan, ends ? &ended : nullptr));
    return;
  }
  if (nothing)
    print("nothing that Lockstep started is running\n");
  else if (!ends)
    print("would end {} processes; add --yes to do it\n", plan.end.size());
  else
    print("ended {}, killed {}, left {}\n", ended.asked.size(), ended.killed.size(), ended.left.size());
}

}  // namespace

void add_kill_all(App& app) {
  const Operation& operation = known_operation("kill-all");
  CLI::App* command = app.cli.add_subcommand("kill-all", operation.help);
  command->footer(
      "lockstep kill-all --dry-run\nlockstep kill-all --yes\nlockstep kill-all --frameworks torch,mlx --dry-run");
  auto given = std::make_shared<GivenWords>();
  auto dry_run = std::make_shared<bool>(false);
  add_arguments(*command, operation, *given);
  command->add_flag("--dry-run", *dry_run, "only show what would be ended");
  command->callback([&app, &operation, given, dry_run] {
    run_kill_all(app, checked_arguments(operation, arguments_from(operation, *given)), *dry_run);
  });
}

}  // namespace lockstep
