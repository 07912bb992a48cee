// The words of `lockstep debug`: from a command line to an operation's arguments.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "service/operation.h"

namespace lockstep {

// "debug start [OPTIONS] SCRIPT ARGS": what stands after the script belongs to the program, whatever it looks like.
// Puts the "--" that says so. Other command lines come back as they are.
std::vector<std::string> with_program_apart(std::vector<std::string> words);

std::string option_name(const Argument& argument);  // "--max-wait"
bool hidden_on_command_line(const Argument& argument);

using GivenWords = std::map<std::string, std::vector<std::string>>;  // argument → its words
Json arguments_from(const Operation& operation, const GivenWords& given);

}  // namespace lockstep
