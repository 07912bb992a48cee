// lockstep debug: one subcommand a row of the operations table.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "capture/store.h"
#include "cli/app.h"
#include "cli/debug_text.h"
#include "cli/debug_words.h"
#include "client/service_process.h"

namespace lockstep {
namespace {

class TerminalControl : public CallControl {
 public:
  bool cancelled() const override { return interrupted(); }
};

void show(const App& app, const Operation& operation, const Json& result) {
  if (app.global.json)
    print_json(result);
  else
    print("{}", debug_text(operation.name, result, Terminal(app.global)));
}

// Prints lines as they come, until the program has ended.
void follow(const App& app, const ServiceProcess& service, const Operation& operation, Json arguments,
            CallControl& control) {
  Json result = call_service(service, operation, arguments, control);
  while (true) {
    result.erase("unfinished");  // it comes again, finished
    print("{}", debug_text(operation.name, result, Terminal(app.global)));
    flush_output();
    if ((result["state"] == "ended" || result["state"] == "lost") && result["lines"].empty()) return;
    if (control.cancelled()) return;
    arguments["from"] = result["next"];
    arguments["lines"] = 1000;
    arguments["max_wait"] = 1;
    result = call_service(service, operation, arguments, control);
  }
}

void run_operation(App& app, const Operation& operation, const GivenWords& given, bool following) {
  const fs::path home = home_folder(app.global.home);
  const Json arguments = with_callers_view(operation, arguments_from(operation, given));
  checked_arguments(operation, arguments);  // what is wrong is said before anything is started
  TerminalControl control;
  const ServiceProcess service = ensure_service(home);
  if (following) return follow(app, service, operation, arguments, control);
  Json waiting = arguments;
  for (const Argument& argument : operation.arguments)
    if (argument.name == "max_wait" && !waiting.contains("max_wait") && argument.standard.is_number())
      waiting["max_wait"] = argument.standard;  // a long wait is made of several
  show(app, operation, call_service(service, operation, waiting, control));
}

CLI::App* subcommand(CLI::App* parent, const std::string& name, const std::string& help) {
  for (CLI::App* known : parent->get_subcommands([](const CLI::App*) { return true; }))
    if (known->get_name() == name) return known;
  return parent->add_subcommand(name, help);
}

void add_operation(App& app, CLI::App* group, const Operation& operation) {
  CLI::App* command = group;
  const std::string words = operation.name.substr(operation.name.find(' ') + 1);
  if (const size_t blank = words.find(' '); blank != std::string::npos) {
    const bool twin = words.starts_with("twin ");
    command = subcommand(group, words.substr(0, blank),
                         twin ? "debug a reference and a candidate together: REFERENCE.py CANDIDATE.py, or one of these"
                              : "show or export the session's trace");
    command->require_subcommand(1);
    command->footer(twin ? "lockstep debug twin start reference.py candidate.py\n"
                           "lockstep debug twin continue --until-divergence\nlockstep debug twin vars"
                         : "lockstep debug trace show --kind stop\nlockstep debug trace export --to trace.json");
    command = command->add_subcommand(words.substr(blank + 1), operation.help);
  } else {
    command = group->add_subcommand(words, operation.help);
  }
  std::string examples;
  for (const std::string& example : operation.examples) examples += (examples.empty() ? "" : "\n") + example;
  command->footer(examples);
  auto given = std::make_shared<GivenWords>();
  auto following = std::make_shared<bool>(false);
  add_arguments(*command, operation, *given);
  if (operation.name == "debug log") command->add_flag("--follow", *following, "follow until the program ends");
  if (operation.name == "debug start") command->positionals_at_end();
  command->callback([&app, &operation, given, following] { run_operation(app, operation, *given, *following); });
}

}  // namespace

void add_debug(App& app) {
  CLI::App* group = app.cli.add_subcommand("debug", "debug live Python programs: stop, inspect, change, continue");
  group->require_subcommand(1);
  group->footer(
      "lockstep debug start generate.py --steps 4\nlockstep debug break model.py:42 --if 'step > 900'\n"
      "lockstep debug continue\nlockstep debug eval 'hidden_states.shape'");
  for (const Operation& operation : operations())
    if (operation.name.starts_with("debug ")) add_operation(app, group, operation);
}

}  // namespace lockstep
