#include "cli/shell_completions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command_tree.h"

namespace lockstep {
namespace {

// A command by the words after `lockstep`: "tensors diff". The program's own options hold for every command.
struct Place {
  std::string path;
  const CLI::App* app;
};

void put_places(std::vector<Place>& places, const std::string& path, const CLI::App& app) {
  places.push_back({path, &app});
  for (const CLI::App* command : visible_commands(app))
    put_places(places, (path.empty() ? "" : path + " ") + command->get_name(), *command);
}

std::vector<Place> places_of(const CLI::App& root) {
  std::vector<Place> places;
  put_places(places, "", root);
  return places;
}

std::vector<OptionWords> options_at(const Place& place, const CLI::App& root) {
  std::vector<OptionWords> all = option_words(*place.app);
  if (place.app == &root) return all;
  for (OptionWords& option : option_words(root))
    if (option.names.front() != "--help" && option.names.front() != "--version") all.push_back(std::move(option));
  return all;
}

std::string quoted(const std::string& text) {  // for bash and zsh
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string quoted_for_fish(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += (c == '\'' || c == '\\' ? std::string("\\") : std::string()) + c;
  return out + "'";
}

// One line of a table in the shell: what is said at a place, with %s the words.
std::string table(const std::string& name, const std::vector<std::pair<std::string, std::string>>& lines) {
  std::string out = fmt::format("{}() {{\n  case \"$1\" in\n", name);
  for (const auto& [key, words] : lines)
    if (!words.empty()) out += fmt::format("    {}) echo {} ;;\n", quoted(key), quoted(words));
  return out + "  esac\n}\n\n";
}

using Lines = std::vector<std::pair<std::string, std::string>>;

struct Tables {
  Lines commands, options, with_value, choices;
};

Tables tables_of(const CLI::App& root) {
  Tables tables;
  for (const Place& place : places_of(root)) {
    std::vector<std::string> below, all, with_value;
    for (const CLI::App* command : visible_commands(*place.app)) below.push_back(command->get_name());
    for (const OptionWords& option : options_at(place, root))
      for (const std::string& name : option.names) {
        all.push_back(name);
        if (option.takes_value) with_value.push_back(name);
        if (!option.choices.empty())
          tables.choices.emplace_back(place.path + " " + name, fmt::format("{}", fmt::join(option.choices, " ")));
      }
    tables.commands.emplace_back(place.path, fmt::format("{}", fmt::join(below, " ")));
    tables.options.emplace_back(place.path, fmt::format("{}", fmt::join(all, " ")));
    tables.with_value.emplace_back(place.path, fmt::format("{}", fmt::join(with_value, " ")));
  }
  return tables;
}

// Both shells read the same tables and walk the words before the cursor in the same way. After `--` comes a program of
// the user's, whose words are files as far as we know.
constexpr const char* kWalk =
    R"(# The command that the words so far name, in `place`; `value_of` is the option whose value comes next.
_lockstep_walk() {
  local word
  place= value_of= theirs=
  for word in "$@"; do
    if [[ $word == -- ]]; then theirs=1; return; fi
    if [[ -n $value_of ]]; then value_of=; continue; fi
    if [[ $word == -* ]]; then
      if [[ " $(_lockstep_with_value "$place") " == *" $word "* ]]; then value_of=$word; fi
    elif [[ " $(_lockstep_commands "$place") " == *" $word "* ]]; then
      place=${place:+$place }$word
    fi
  done
}

)";

std::string shared_functions(const CLI::App& root) {
  const Tables tables = tables_of(root);
  return table("_lockstep_commands", tables.commands) + table("_lockstep_options", tables.options) +
         table("_lockstep_with_value", tables.with_value) + table("_lockstep_choices", tables.choices) + kWalk;
}

}  // namespace

std::string bash_completions(const CLI::App& root) {
  return "# bash completion for lockstep\n" + shared_functions(root) + R"(_lockstep() {
  local current=${COMP_WORDS[COMP_CWORD]} place value_of theirs words=
  COMPREPLY=()
  _lockstep_walk "${COMP_WORDS[@]:1:COMP_CWORD-1}"
  if [[ -n $theirs ]]; then
    return
  elif [[ -n $value_of ]]; then
    words=$(_lockstep_choices "$place $value_of")
  elif [[ $current == -* ]]; then
    words=$(_lockstep_options "$place")
  else
    words=$(_lockstep_commands "$place")
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}

complete -o default -F _lockstep lockstep
)";
}

std::string zsh_completions(const CLI::App& root) {
  return "#compdef lockstep\n" + shared_functions(root) + R"(_lockstep() {
  local place value_of theirs offered=
  _lockstep_walk "${(@)words[2,CURRENT-1]}"
  if [[ -n $theirs ]]; then
    _normal
    return
  elif [[ -n $value_of ]]; then
    offered=$(_lockstep_choices "$place $value_of")
  elif [[ $words[CURRENT] == -* ]]; then
    offered=$(_lockstep_options "$place")
  else
    offered=$(_lockstep_commands "$place")
  fi
  if [[ -n $offered ]]; then
    compadd -- ${=offered}
  else
    _files
  fi
}

if [[ $funcstack[1] == _lockstep ]]; then
  _lockstep "$@"
else
  compdef _lockstep lockstep
fi
)";
}

std::string fish_completions(const CLI::App& root) {
  std::string out = "# fish completion for lockstep\n";
  const Tables tables = tables_of(root);
  const auto fish_table = [&](const char* name, const Lines& lines) {
    out += fmt::format("function {}\n  switch $argv[1]\n", name);
    for (const auto& [key, words] : lines)
      if (!words.empty())
        out += fmt::format("    case {}\n      string split ' ' -- {}\n", quoted_for_fish(key), quoted_for_fish(words));
    out += "  end\nend\n\n";
  };
  fish_table("__lockstep_commands", tables.commands);
  fish_table("__lockstep_with_value", tables.with_value);
  out += R"(# Whether the words so far name this command.
function __lockstep_at
  set -l place ''
  set -l value 0
  for word in (commandline -opc)[2..-1]
    if test $word = --
      return 1
    else if test $value = 1
      set value 0
    else if string match -q -- '-*' $word
      contains -- $word (__lockstep_with_value $place); and set value 1
    else if contains -- $word (__lockstep_commands $place)
      set place (string trim -- "$place $word")
    end
  end
  test "$place" = "$argv[1]"
end

)";
  for (const Place& place : places_of(root)) {
    const std::string when =
        fmt::format("complete -c lockstep -n {}", quoted_for_fish("__lockstep_at " + quoted_for_fish(place.path)));
    for (const CLI::App* command : visible_commands(*place.app))
      out += fmt::format("{} -f -a {} -d {}\n", when, quoted_for_fish(command->get_name()),
                         quoted_for_fish(command->get_description()));
    for (const OptionWords& option : options_at(place, root)) {
      std::string line = when;
      for (const std::string& name : option.names)
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.takes_value) line += option.choices.empty() ? " -r" : " -x";
      if (!option.choices.empty()) line += " -a " + quoted_for_fish(fmt::format("{}", fmt::join(option.choices, " ")));
      out += fmt::format("{} -d {}\n", line, quoted_for_fish(option.meaning));
    }
  }
  return out;
}

}  // namespace lockstep
