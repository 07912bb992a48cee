#include <fmt/format.h>

#include "base/json.h"
#include "cli/app.h"

namespace lockstep {

void add_doctor(App& app) {
  CLI::App* command =
      app.cli.add_subcommand("doctor", "what this machine offers: CPU features, memory, libraries, versions");
  command->callback([&app] {
    if (app.global.json)
      fmt::print("{}\n", Json{{"version", LOCKSTEP_VERSION}}.dump());
    else
      fmt::print("lockstep {}\n", LOCKSTEP_VERSION);
  });
}

}  // namespace lockstep
