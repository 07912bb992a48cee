// lockstep profile: where a program's time and memory go, and how two programs compare.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "cli/app.h"
#include "cli/operation_options.h"
#include "cli/profile_text.h"
#include "cli/shown_run.h"
#include "service/service.h"
#include "toolbox/profiled_program.h"

namespace lockstep {
namespace {

struct ProfileOptions {
  RecordRequest request;
  std::string run, page, trace, evaluate = "stages";
};

void run_profile(App& app, ProfileOptions& options) {
  const fs::path run = run_to_show(app, "profile", options.run, options.request, [&](const RecordRequest& request) {
    return profile_program(request, options.evaluate);
  });
  const ProgramProfile profile = read_profile(run);
  const std::string id = run.filename().string();
  if (!options.page.empty()) write_atomically(options.page, profile_page(profile, "Time and memory of " + id));
  if (!options.trace.empty()) write_atomically(options.trace, chrome_trace(profile));
  if (app.global.json) {
    Json document = json_from(profile);
    document["run"] = id;
    print_json(document);
  } else {
    print(text_from(Terminal(app.global), profile));
  }
}

void add_compare_to(App& app, CLI::App& group) {
  const Operation& operation = known_operation("profile compare");
  CLI::App* command = group.add_subcommand("compare", operation.help);
  command->footer("lockstep profile compare latest:reference latest:port\nlockstep profile compare A B --json");
  auto given = std::make_shared<GivenWords>();
  add_arguments(*command, operation, *given);
  command->callback([&app, &operation, given] {
    const Json arguments = checked_arguments(operation, arguments_from(operation, *given));
    const Store store(home_folder(app.global.home));
    const ProfileComparison comparison =
        compare_profiles(read_profile(store.resolve(text_argument(arguments, "reference"))),
                         read_profile(store.resolve(text_argument(arguments, "candidate"))));
    if (app.global.json)
      print_json(json_from(comparison));
    else
      print(text_from(Terminal(app.global), comparison));
  });
}

}  // namespace

void add_profile(App& app) {
  CLI::App* command = app.cli.add_subcommand("profile", "run a Python program and show where its time and memory go");
  command->footer(
      "lockstep profile -- python generate.py\nlockstep profile --html times.html --trace times.json -- python "
      "generate.py\n"
      "lockstep profile compare latest:reference latest:port");
  auto options = std::make_shared<ProfileOptions>();
  command->add_option("--name", options->request.name, "name of the run (default: the script's)");
  command->add_option("--run", options->run, "show an earlier profiled run")->type_name("RUN");
  command->add_option("--html", options->page, "write one HTML page with a flame graph and the memory over time")
      ->type_name("FILE");
  command->add_option("--trace", options->trace, "write it in Chrome's trace format (Perfetto opens it)")
      ->type_name("FILE");
  command
      ->add_option("--evaluate", options->evaluate,
                   "where to evaluate MLX, so that time is attributed correctly: stages, modules or none")
      ->check(CLI::IsMember({"stages", "modules", "none"}));
  command
      ->add_option("--functions", options->request.functions,
                   "also time plain functions of these Python modules (globs, comma separated)")
      ->type_name("GLOBS");
  command->add_option("--python", options->request.python, "the Python that runs a .py file (default python3)");
  command->add_option("program", options->request.argv, "after --: the program and its arguments");
  command->positionals_at_end();
  command->require_subcommand(0, 1);
  add_compare_to(app, *command);
  command->callback([&app, command, options] {
    if (command->get_subcommands().empty()) run_profile(app, *options);
  });
}

}  // namespace lockstep
