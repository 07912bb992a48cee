// An operation's arguments as options of a command: made from its row of the table, so that the terminal takes what
// REST and MCP take.
#pragma once
#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "service/operation.h"

namespace lockstep {

std::string option_name(const Argument& argument);  // "--max-wait"
bool hidden_on_command_line(const Argument& argument);

using GivenWords = std::map<std::string, std::vector<std::string>>;  // argument → its words
// `given` must live as long as the command.
void add_arguments(CLI::App& command, const Operation& operation, GivenWords& given);
Json arguments_from(const Operation& operation, const GivenWords& given);

}  // namespace lockstep
