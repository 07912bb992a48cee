// SHA-256, and a message authenticated with a secret by it (HMAC).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

std::array<uint8_t, 32> sha256(std::string_view bytes);
std::string hmac_sha256_hex(std::string_view secret, std::string_view message);
bool same_secret(std::string_view given, std::string_view secret);  // as long for a wrong one; an empty secret is none

}  // namespace lockstep
