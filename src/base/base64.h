#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

std::string base64(std::span<const uint8_t> bytes);
std::optional<std::vector<uint8_t>> bytes_from_base64(std::string_view text);  // nothing where it is no base64

}  // namespace lockstep
