// Help: examples first, then arguments and options; and what to say when a command line is wrong.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cli/app.h"

namespace lockstep {

// Commands keep their examples in CLI11's footer: one command line each, without the leading "$ ".
std::shared_ptr<CLI::FormatterBase> help_formatter();

// Which word of the command line is unknown, and the nearest known one; CLI11's own words where nothing is unknown.
std::string explain_parse_error(const CLI::App& root, const std::vector<std::string>& words,
                                const CLI::ParseError& error);

// docs/cli.md: every command, from the same descriptions.
std::string markdown_reference(const CLI::App& root);

}  // namespace lockstep
