// lockstep(1): every command, from the same descriptions as the help.
#pragma once
#include <string>

#include "cli/app.h"

namespace lockstep {

std::string manual_page(const CLI::App& root);  // roff with the macros of man(7)

}  // namespace lockstep
