#pragma once
#include <string>
#include <string_view>

namespace lockstep {

// One gzip member. Error{kMemory} where the library has no room.
std::string gzip(std::string_view bytes, int level = 6);

}  // namespace lockstep
