#include "cli/app.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>
#include <system_error>

#include "base/broken_pipe.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/number_text.h"
#include "base/platform/machine_facts.h"
#include "base/shown_json.h"
#include "base/text.h"
#include "cli/cmd_dap.h"
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
          "log to stderr what is opened and decided, with times")
      ->excludes(quiet);
  app.cli.add_flag("--debug", app.global.debug, "record the run at its taps (generate, edit)");
  app.cli.add_option("--color", app.global.color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN")
      ->capture_default_str();
  app.cli.add_option("--home", app.global.home, "folder for runs (default: LOCKSTEP_HOME, or .lockstep)")
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
                     secs(used.ru_stime), text_from_bytes(bytes_of_peak(used.ru_maxrss)));
}

// Never throws: whatever has gone wrong, the status gets out.
int report(const App& app, bool json, Code code, const std::string& message) noexcept {
  try {
    print_error("lockstep: {}\n", Text::from_lines(message));
    if (json) print_json({{"error", {{"code", code_name(code)}, {"message", message}}}});
  } catch (const std::exception&) {  // no memory for words, or nowhere to write them
  }
  return app.failure_status && code != Code::kCancelled ? app.failure_status : exit_status(code);
}

// The first word that is neither a global option nor the value of one; empty where there is none, or the options are
// not known.
std::string_view command_word(const App& app, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with('-')) return words[i];
    const std::string name = words[i].substr(0, words[i].find('='));
    const CLI::Option* option = app.cli.get_option_no_throw(name);
    if (!option) return {};
    if (option->get_items_expected_min() > 0 && name == words[i]) ++i;
  }
  return {};
}

int report_parse_error(App& app, const std::vector<std::string>& words, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {  // --help, --version
    std::ostringstream shown, none;
    shown.exceptions(std::ios::badbit);  // else a help that memory ran out for would be shown in part, as if whole
    const int status = app.cli.exit(error, shown, none);
    try {
      print(Text::trusted(shown.str()));
      flush_output();
    } catch (const Error& full) {
      return report(app, false, full.code(), full.what());
    }
    return status;
  }
  if (words.empty()) {
    print_error(Text::trusted(app.cli.help()));
    return exit_status(Code::kUsage);
  }
  const bool json = std::find(words.begin(), words.end(), "--json") != words.end();
  return report(app, json, Code::kUsage, explain_parse_error(app.cli, words, error));
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
  print("{}\n", Text::trusted(shown_json(document)));
}

namespace {

struct Command {
  std::string_view name;
  void (*add)(App&);
};

constexpr Command kCommands[]{
    {"batch", add_batch},
    {"clean", add_clean},
    {"compare", add_compare},
    {"coverage", add_coverage},
    {"profile", add_profile},
    {"prune", add_prune},
    {"dap", add_dap},
    {"debug", add_debug},
    {"doctor", add_doctor},
    {"generate", add_generate},
    {"edit", add_edit},
    {"docs", add_docs},
    {"health", add_health},
    {"jobs", add_jobs},
    {"kill-all", add_kill_all},
    {"ledger", add_ledger},
    {"mcp", add_mcp},
    {"record", add_record},
    {"reference", add_reference},
    {"runs", add_runs},
    {"serve", add_serve},
    {"tensors", add_tensors},
    {"tutorial", add_tutorial},
    {"weights", add_weights},
    {"zoom", add_zoom},
};

// Only the command that is asked for, where it is clear which: setting up the options of all takes longer than most
// commands run.
void add_commands(App& app, const std::vector<std::string>& words) {
  if (words == std::vector<std::string>{"--version"}) return;
  const std::string_view word = command_word(app, words);
  const auto* one = std::find_if(std::begin(kCommands), std::end(kCommands),
                                 [&](const Command& command) { return command.name == word; });
  if (word == "record") app.failure_status = kRecordFailed;
  if (one != std::end(kCommands) && word != "docs") return one->add(app);  // docs prints all of them
  for (const Command& command : kCommands) command.add(app);
}

int run_command(int argc, char** argv) {
  App app;
  const std::vector<std::string> arguments = with_program_apart(split_empty_values(argc, argv));
  install_interrupt_handler();
  ignore_broken_pipes();
  add_global_options(app);
  add_commands(app, arguments);
  app.cli.require_subcommand(1);
  try {
    app.cli.name("lockstep");
    app.cli.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 wants them last first
    flush_output();  // a full disk behind stdout is a failure, whatever the command did
    if (verbose()) note("done", "exit status {}, {}", app.status, resources_used());
    return app.status;
  } catch (const CLI::ParseError& error) {
    return report_parse_error(app, arguments, error);
  } catch (const Error& error) {
    return report(app, app.global.json, error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return report(app, app.global.json, Code::kMemory,
                  "[memory] the system has no more memory to give; try a smaller size");
  } catch (const std::system_error& error) {  // of a thread, a lock or a file operation that is not ours to name
    return report(app, app.global.json, Code::kIo, std::string("[system] ") + error.what());
  } catch (const std::exception& error) {
    return report(app, app.global.json, Code::kInternal,
                  std::string("[internal] ") + error.what() + "; internal error, please report it");
  }
}

}  // namespace

int run_app(int argc, char** argv) {
  try {
    return run_command(argc, argv);
  } catch (...) {  // not even the words for an error could be put together
    constexpr std::string_view kWords = "lockstep: [memory] the system has no more memory to give\n";
    static_cast<void>(!::write(STDERR_FILENO, kWords.data(), kWords.size()));
    for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i)
      if (std::string_view(argv[i]) == "record") return kRecordFailed;  // memory ran out before it was known
    return exit_status(Code::kMemory);
  }
}

}  // namespace lockstep
