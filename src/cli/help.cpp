#include "cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/names.h"
#include "cli/command_tree.h"

namespace lockstep {
namespace {

void put_entries(std::string& out, const std::string& title, const std::vector<HelpEntry>& entries) {
  if (entries.empty()) return;
  constexpr size_t kMostIndent = 26;
  size_t widest = 0;
  for (const HelpEntry& entry : entries)
    if (entry.name.size() <= kMostIndent) widest = std::max(widest, entry.name.size());
  out += "\n" + title + "\n";
  for (const HelpEntry& entry : entries) {
    if (entry.name.size() > widest)
      out += fmt::format("  {}\n  {:<{}}  {}\n", entry.name, "", widest, entry.meaning);
    else
      out += fmt::format("  {:<{}}  {}\n", entry.name, widest, entry.meaning);
  }
}

class ExamplesFirst : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    std::string out = app->get_description() + "\n";
    const std::vector<std::string> examples = lines_of(app->get_footer());
    if (!examples.empty()) out += "\nExamples\n";
    for (const std::string& example : examples) out += "  " + example + "\n";
    out += "\nUsage\n  " + usage(*app) + "\n";
    put_entries(out, "Commands", commands(*app));
    put_entries(out, "Arguments", arguments(*app));
    put_entries(out, "Options", options(*app));
    if (app->get_parent())
      out += "\nEvery command also takes --json, --quiet, --verbose, --color and --home: see lockstep --help.\n";
    else
      out += "\nRun lockstep COMMAND --help for more about a command.\n";
    return out;
  }
};

std::vector<std::string> option_names(const CLI::App* app) {
  std::vector<std::string> names;
  for (; app; app = app->get_parent())
    for (const CLI::Option* option : app->get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

const CLI::Option* find_option(const CLI::App* app, const std::string& name) {
  for (; app; app = app->get_parent())
    if (const CLI::Option* option = app->get_option_no_throw(name)) return option;
  return nullptr;
}

std::string unknown(const std::string& kind, const std::string& word, const std::vector<std::string>& known,
                    const CLI::App& app) {
  const std::vector<std::string> near = nearest_names(word, known);
  const std::string hint = near.empty() ? full_name(app) + " --help" : fmt::format("{}", fmt::join(near, " or "));
  return fmt::format("[usage] {} has no {} '{}'; try {}", full_name(app), kind, word, hint);
}

// A bar would end the cell.
std::string in_cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

void put_markdown(std::string& out, const CLI::App& app) {
  out += fmt::format("\n## `{}`\n\n{}\n\n", full_name(app), app.get_description());
  const std::vector<std::string> examples = lines_of(app.get_footer());
  if (!examples.empty()) out += fmt::format("```sh\n{}\n```\n\n", fmt::join(examples, "\n"));
  out += fmt::format("Usage: `{}`\n", usage(app));
  const auto table = [&](const char* title, const std::vector<HelpEntry>& entries) {
    if (entries.empty()) return;
    out += fmt::format("\n| {} | |\n|---|---|\n", title);
    for (const HelpEntry& entry : entries)
      out += fmt::format("| `{}` | {} |\n", in_cell(entry.name), in_cell(entry.meaning));
  };
  table("command", commands(app));
  table("argument", arguments(app));
  table("option", options(app));
  for (const CLI::App* command : visible_commands(app)) put_markdown(out, *command);
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() {
  return std::make_shared<ExamplesFirst>();
}

std::string explain_parse_error(const CLI::App& root, const std::vector<std::string>& words,
                                const CLI::ParseError& error) {
  const CLI::App* app = &root;
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const std::string& word = words[i];
    if (word.size() > 1 && word[0] == '-') {
      const std::string name = word.substr(0, word.find('='));
      const CLI::Option* option = find_option(app, name);
      if (!option) return unknown("option", name, option_names(app), *app);
      if (option->get_items_expected_min() > 0 && name == word) ++i;  // its value
      continue;
    }
    const std::vector<const CLI::App*> below = visible_commands(*app);
    if (below.empty()) continue;  // an argument
    const auto found =
        std::find_if(below.begin(), below.end(), [&](const CLI::App* c) { return c->get_name() == word; });
    if (found == below.end()) {
      std::vector<std::string> known;
      for (const CLI::App* command : below) known.push_back(command->get_name());
      return unknown("command", word, known, *app);
    }
    app = *found;
  }
  return fmt::format("[usage] {}; try {} --help", error.what(), full_name(*app));
}

std::string markdown_reference(const CLI::App& root) {
  std::string out =
      "# Command line\n\nThis page is generated from the program's own help by `./dev docs`; do not edit it.\n\n"
      "Results go to stdout, progress and messages to stderr. The exit status is 0 for success or a match, 1 for a "
      "difference,\n2 for wrong usage or bad input, 3 for a failure (file, memory, device, program), 4 for an internal "
      "error, and 130 if\ninterrupted.\n";
  put_markdown(out, root);
  return out;
}

}  // namespace lockstep
