// The words of `lockstep debug start`: which are ours, and which the program's.
#pragma once
#include <string>
#include <vector>

#include "cli/operation_options.h"

namespace lockstep {

// "debug start [OPTIONS] SCRIPT ARGS": what stands after the script belongs to the program, whatever it looks like.
// Puts the "--" that says so. Other command lines come back as they are.
std::vector<std::string> with_program_apart(std::vector<std::string> words);

}  // namespace lockstep
