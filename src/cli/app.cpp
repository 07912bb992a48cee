#include "cli/app.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/number_text.h"
#include "cli/debug_words.h"
#include "cli/help.h"

namespace lockstep {
namespace {

void add_global_options(App& app) {
  app.cli.formatter(help_formatter());
  app.cli.footer("lockstep doctor\nlockstep tensors diff reference.npy candidate.npy\nlockstep weights report model/");
  app.cli.add_flag("--json", app.global.json, "print one JSON document on stdout");
  CLI::Option* quiet = app.cli.add_flag("--quiet", app.global.quiet, "no progress and no messages");
  app.cli
      .add_flag_callback(
          "--verbose",
          [&app] {
            app.global.verbose = true;
            set_verbose(true);
          },
          "say on stderr what is opened and decided, and when")
      ->excludes(quiet);
  app.cli.add_flag("--debug", app.global.debug, "record the run at its taps (generate, edit)");
  app.cli.add_option("--color", app.global.color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN")
      ->capture_default_str();
  app.cli.add_option("--home", app.global.home, "where runs are kept (LOCKSTEP_HOME, else .lockstep)")
      ->envname("LOCKSTEP_HOME")
      ->type_name("DIR");
  app.cli.set_version_flag("--version", std::string("lockstep ") + LOCKSTEP_VERSION, "print the version");
  app.cli.fallthrough();  // global options may stand before or after the command
}

// Processor time and memory of the whole process.
std::string resources_used() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto secs = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return fmt::format("{:.3f} s of processor time and {:.3f} s in the system, at most {} resident", secs(used.ru_utime),
                     secs(used.ru_stime), text_from_bytes(static_cast<uint64_t>(used.ru_maxrss) * 1024));
}

int report(bool json, Code code, const std::string& message) {
  if (json) print_json({{"error", {{"code", code_name(code)}, {"message", message}}}});
  fmt::print(stderr, "lockstep: {}\n", message);
  return exit_status(code);
}

int report_parse_error(const App& app, const std::vector<std::string>& words, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.cli.exit(error);  // --help, --version
  if (words.empty()) {
    fmt::print(stderr, "{}", app.cli.help());
    return exit_status(Code::kUsage);
  }
  const bool json = std::find(words.begin(), words.end(), "--json") != words.end();
  return report(json, Code::kUsage, explain_parse_error(app.cli, words, error));
}

// CLI11 takes "--x=" for an option without a value and swallows the next argument; an empty value is a value ("" is a
// prompt).
std::vector<std::string> split_empty_values(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool empty_value =
        argument.size() > 3 && argument.starts_with("--") && argument.find('=') == argument.size() - 1;
    arguments.push_back(empty_value ? argument.substr(0, argument.size() - 1) : argument);
    if (empty_value) arguments.emplace_back();
  }
  return arguments;
}

}  // namespace

void print_json(const Json& document) {
  fmt::print("{}\n", document.dump(-1, ' ', false, Json::error_handler_t::replace));
}

int run_app(int argc, char** argv) {
  App app;
  const std::vector<std::string> arguments = with_program_apart(split_empty_values(argc, argv));
  install_interrupt_handler();
  add_global_options(app);
  add_compare(app);
  add_debug(app);
  add_doctor(app);
  add_generate(app);
  add_docs(app);
  add_ledger(app);
  add_mcp(app);
  add_record(app);
  add_reference(app);
  add_runs(app);
  add_serve(app);
  add_tensors(app);
  add_weights(app);
  app.cli.require_subcommand(1);
  try {
    app.cli.name("lockstep");
    app.cli.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 wants them last first
    note("done", "exit status {}, {}", app.status, resources_used());
    return app.status;
  } catch (const CLI::ParseError& error) {
    return report_parse_error(app, arguments, error);
  } catch (const Error& error) {
    return report(app.global.json, error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return report(app.global.json, Code::kMemory, "[memory] the system has no more memory to give; try a smaller size");
  } catch (const std::exception& error) {
    return report(app.global.json, Code::kInternal,
                  std::string("[internal] ") + error.what() + "; this is a bug of ours");
  }
}

}  // namespace lockstep
