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

namespace {

// `debug twin A.py B.py` starts them; every other verb of twin sessions is named.
void name_the_start_of_twins(std::vector<std::string>& words) {
  const auto debug = std::find(words.begin(), words.end(), "debug");
  if (debug == words.end() || words.end() - debug < 3 || *(debug + 1) != "twin") return;
  const std::string& word = *(debug + 2);
  if (!word.starts_with('-') && !find_operation("debug twin " + word)) words.insert(debug + 2, "start");
}

}  // namespace

std::vector<std::string> with_program_apart(std::vector<std::string> words) {
  name_the_start_of_twins(words);
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

}  // namespace lockstep
