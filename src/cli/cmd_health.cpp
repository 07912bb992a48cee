// lockstep health: what is odd in a run by itself.
#include <fmt/format.h>

#include <memory>

#include "base/text.h"
#include "capture/store.h"
#include "cli/app.h"
#include "cli/health_text.h"
#include "cli/operation_options.h"
#include "service/service.h"

namespace lockstep {

void add_health(App& app) {
  add_health_to(app, app.cli, "lockstep health");
}

void add_health_to(App& app, CLI::App& group, const std::string& name) {
  const Operation& operation = known_operation("runs health");
  CLI::App* command = group.add_subcommand("health", operation.help);
  command->footer(name + " latest\n" + name + " latest:port --json");
  auto given = std::make_shared<GivenWords>();
  add_arguments(*command, operation, *given);
  auto attention = std::make_shared<bool>(false);
  command->add_flag("--attention", *attention, "show shapes, entropy and sink share of every head (record --health)");
  command->callback([&app, &operation, given, attention] {
    const Json arguments = checked_arguments(operation, arguments_from(operation, *given));
    const Run run = Run::open(text_argument(arguments, "run"), home_folder(app.global.home));
    const RunHealth health = examine_run(run);
    if (app.global.json)
      print_json(json_from(health, run));
    else
      print("{}", text_from(health, run));
    if (*attention && !app.global.json) print(attention_text(health, Terminal(app.global)));
    app.status = health.findings.empty() ? 0 : 1;
  });
}

}  // namespace lockstep
