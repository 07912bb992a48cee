// Secrets that programs know each other by.
#pragma once
#include <string>

namespace lockstep {

std::string new_token();  // 64 hex digits from the system's random source

}  // namespace lockstep
