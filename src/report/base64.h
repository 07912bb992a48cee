#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

std::string base64(std::span<const uint8_t> bytes);

}  // namespace lockstep
