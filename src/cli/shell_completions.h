// What bash, zsh and fish offer while a command line is typed: commands, options, and the values of options that have
// few.
#pragma once
#include <string>

#include "cli/app.h"

namespace lockstep {

std::string bash_completions(const CLI::App& root);
std::string zsh_completions(const CLI::App& root);
std::string fish_completions(const CLI::App& root);

}  // namespace lockstep
