#include "cli/command_tree.h"

#include <algorithm>

namespace lockstep {
namespace {

std::string value_name(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string name = option.get_type_name();
  return " " + name.substr(0, name.find(':'));  // without the check's own words
}

// "-n,--name". The library's own puts it together in a stream, which without memory ends in the middle of a word.
std::string all_names(const CLI::Option& option) {
  std::string names;
  for (const std::string& name : option.get_snames()) names += (names.empty() ? "-" : ",-") + name;
  for (const std::string& name : option.get_lnames()) names += (names.empty() ? "--" : ",--") + name;
  return names;
}

}  // namespace

std::vector<const CLI::App*> visible_commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() ? full_name(*app.get_parent()) + " " + app.get_name() : "lockstep";
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::vector<HelpEntry> arguments(const CLI::App& app) {
  std::vector<HelpEntry> entries;
  for (const CLI::Option* option : app.get_options())
    if (option->get_positional()) entries.push_back({option->get_name(true), option->get_description()});
  return entries;
}

std::vector<HelpEntry> options(const CLI::App& app) {
  std::vector<HelpEntry> entries;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || option->get_group().empty() || option == app.get_help_ptr()) continue;
    std::string meaning = option->get_description();
    const std::string otherwise = option->get_default_str();
    if (!otherwise.empty() && otherwise != "false") meaning += " (default " + otherwise + ")";
    entries.push_back({all_names(*option) + value_name(*option), meaning});
  }
  return entries;
}

std::vector<HelpEntry> commands(const CLI::App& app) {
  std::vector<HelpEntry> entries;
  for (const CLI::App* command : visible_commands(app))
    entries.push_back({command->get_name(), command->get_description()});
  return entries;
}

std::string usage(const CLI::App& app) {
  std::string line = full_name(app);
  if (!visible_commands(app).empty()) line += " COMMAND";
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name(true);
    line += option->get_required() ? " " + name : " [" + name + "]";
  }
  return line + " [OPTIONS]";
}

std::vector<OptionWords> option_words(const CLI::App& app) {
  std::vector<OptionWords> all;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || option->get_group().empty()) continue;
    OptionWords words;
    for (const std::string& name : option->get_lnames()) words.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) words.names.push_back("-" + name);
    words.meaning = option->get_description();
    words.takes_value = option->get_items_expected_max() > 0;
    // CLI11 writes a choice into the value's name: WHEN:{auto,always,never}.
    const std::string type = option->get_type_name();
    const size_t open = type.find('{'), close = type.find('}');
    for (size_t at = open; open != std::string::npos && at < close;) {
      const size_t end = std::min(type.find(',', at + 1), close);
      words.choices.push_back(type.substr(at + 1, end - at - 1));
      at = end;
    }
    all.push_back(words);
  }
  return all;
}

}  // namespace lockstep
