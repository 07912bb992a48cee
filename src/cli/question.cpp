#include "cli/question.h"

#include <unistd.h>

#include <iostream>

namespace lockstep {

bool somebody_is_there() {
  return ::isatty(STDIN_FILENO) != 0;
}

bool agreed(const Text& question) {
  if (!somebody_is_there()) return false;
  print_error("{} [y/N] ", question);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

}  // namespace lockstep
