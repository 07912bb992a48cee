// Sizes as people read them.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep {

std::string text_from_bytes(uint64_t bytes);  // "512 B", "1.50 MB"; decimal units, as disks are sold

}  // namespace lockstep
