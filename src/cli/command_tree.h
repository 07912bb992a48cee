// The commands and their options as plain words: what the help, docs/cli.md, the manual page and the shells'
// completions are made from.
#pragma once
#include <string>
#include <vector>

#include "cli/app.h"

namespace lockstep {

struct HelpEntry {
  std::string name, meaning;
};

struct OptionWords {
  std::vector<std::string> names;  // with their dashes
  std::string meaning;
  bool takes_value = false;
  std::vector<std::string> choices;  // empty: any value
};

std::vector<const CLI::App*> visible_commands(const CLI::App& app);
std::string full_name(const CLI::App& app);                  // "lockstep tensors diff"
std::vector<std::string> lines_of(const std::string& text);  // empty lines left out
std::vector<HelpEntry> arguments(const CLI::App& app);
std::vector<HelpEntry> options(const CLI::App& app);  // as the help shows them, --help left out
std::vector<HelpEntry> commands(const CLI::App& app);
std::string usage(const CLI::App& app);
std::vector<OptionWords> option_words(const CLI::App& app);  // with --help

}  // namespace lockstep
