#include "cli/operation_options.h"

#include <algorithm>

namespace lockstep {
namespace {

std::string value_name(const Argument& argument) {
  if (!argument.value.empty()) return argument.value;
  return argument.type == ArgumentType::kTextMap ? "NAME=VALUE" : "VALUE";
}

}  // namespace

std::string option_name(const Argument& argument) {
  std::string name = argument.name;
  std::replace(name.begin(), name.end(), '_', '-');
  const bool on = argument.type == ArgumentType::kBool && argument.standard == Json(true);
  return (on ? "--no-" : "--") + name;
}

bool hidden_on_command_line(const Argument& argument) {
  return argument.name == "whole_environment";
}

void add_arguments(CLI::App& command, const Operation& operation, GivenWords& given) {
  for (const Argument& argument : operation.arguments) {
    if (hidden_on_command_line(argument)) continue;
    std::vector<std::string>& to = given[argument.name];
    if (argument.type == ArgumentType::kBool) {
      const std::string value = argument.standard == Json(true) ? "false" : "true";
      command.add_flag_callback(
          option_name(argument), [&to, value] { to = {value}; },
          argument.help_off.empty() ? argument.help : argument.help_off);
      continue;
    }
    std::string name = argument.positional ? argument.name : option_name(argument);
    if (argument.positional) std::transform(name.begin(), name.end(), name.begin(), ::toupper);
    if (argument.name == "module" && operation.name == "debug start") name = "-m," + name;
    const bool many = argument.type == ArgumentType::kTextList || argument.type == ArgumentType::kTextMap;
    CLI::Option* option = many ? command.add_option(name, to, argument.help)
                               : command.add_option_function<std::string>(
                                     name, [&to](const std::string& word) { to = {word}; }, argument.help);
    if (argument.positional && many)
      option->expected(0, 1 << 20);
    else
      option->expected(1)->multi_option_policy(many ? CLI::MultiOptionPolicy::TakeAll
                                                    : CLI::MultiOptionPolicy::TakeLast);
    if (!argument.positional) option->type_name(value_name(argument));
    if (argument.required) option->required();
  }
}

Json arguments_from(const Operation& operation, const GivenWords& given) {
  Json arguments = Json::object();
  for (const Argument& argument : operation.arguments) {
    const auto found = given.find(argument.name);
    if (found == given.end() || found->second.empty()) continue;
    if (argument.type == ArgumentType::kTextList) {
      arguments[argument.name] = found->second;
    } else if (argument.type == ArgumentType::kTextMap) {
      arguments[argument.name] = Json::object();
      for (const std::string& word : found->second)
        arguments[argument.name].update(value_from_text(operation, argument, word));
    } else {
      arguments[argument.name] = value_from_text(operation, argument, found->second.back());
    }
  }
  // With -m all words are the module's own.
  if (operation.name == "debug start" && arguments.contains("module") && arguments.contains("script")) {
    Json words = Json::array({arguments["script"]});
    for (const Json& word : arguments.value("arguments", Json::array())) words.push_back(word);
    arguments["arguments"] = words;
    arguments.erase("script");
  }
  return arguments;
}

}  // namespace lockstep
