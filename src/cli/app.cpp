#include "cli/app.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"

namespace lockstep {
namespace {

void add_global_options(App& app) {
  app.cli.add_flag("--json", app.global.json, "print one JSON document on stdout");
  app.cli.add_flag("--quiet", app.global.quiet, "no progress and no messages");
  app.cli.add_flag("--verbose", app.global.verbose, "more messages");
  app.cli.add_option("--color", app.global.color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  app.cli.add_option("--home", app.global.home, "where runs are kept (default .lockstep)")->envname("LOCKSTEP_HOME");
  app.cli.set_version_flag("--version", std::string("lockstep ") + LOCKSTEP_VERSION);
  app.cli.fallthrough();  // global options may stand before or after the command
}

int report(const App& app, Code code, const std::string& message) {
  if (app.global.json) fmt::print("{}\n", Json{{"error", {{"code", code_name(code)}, {"message", message}}}}.dump());
  fmt::print(stderr, "lockstep: {}\n", message);
  return exit_status(code);
}

}  // namespace

int run_app(int argc, char** argv) {
  App app;
  install_interrupt_handler();
  add_global_options(app);
  add_doctor(app);
  add_generate(app);
  app.cli.require_subcommand(1);
  try {
    app.cli.parse(argc, argv);
    return app.status;
  } catch (const CLI::ParseError& error) {
    const int status = app.cli.exit(error);
    return status == 0 ? 0 : exit_status(Code::kUsage);
  } catch (const Error& error) {
    return report(app, error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return report(app, Code::kMemory, "[memory] the system has no more memory to give; try a smaller size");
  } catch (const std::exception& error) {
    return report(app, Code::kInternal, std::string("[internal] ") + error.what() + "; this is a bug of ours");
  }
}

}  // namespace lockstep
