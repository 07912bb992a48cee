// Environment variables, as values that a program is started with.
#pragma once
#include <map>
#include <string>

namespace lockstep {

using Environment = std::map<std::string, std::string>;

Environment current_environment();

}  // namespace lockstep
