#include "cli/debug_words.h"

#include <algorithm>

#include "service/service.h"

namespace lockstep {
namespace {

bool takes_value(const std::string& word, const Operation& start) {
  if (word == "-m" || word == "--home" || word == "--color") return true;
  return std::any_of(start.arguments.begin(), start.arguments.end(), [&](const Argument& argument) {
    return !argument.positional && argument.type != ArgumentType::kBool && word == option_name(argument);
  });
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

std::vector<std::string> with_program_apart(std::vector<std::string> words) {
  const Operation* start = find_operation("debug start");
  const auto debug = std::find(words.begin(), words.end(), "debug");
  if (!start || debug == words.end() || debug + 1 == words.end() || *(debug + 1) != "start") return words;
  for (auto word = debug + 2; word != words.end(); ++word) {
    if (*word == "--") return words;
    if (word->size() > 1 && word->front() == '-') {
      const bool module = *word == "-m" || *word == "--module";
      if (takes_value(*word, *start) && word + 1 != words.end()) ++word;
      if (!module) continue;
      ++word;  // a module takes the script's place
    }
    words.insert(word, "--");
    return words;
  }
  return words;
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
