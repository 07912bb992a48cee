// The byte alphabet of byte-level BPE: every byte has a printable code point, and vocabulary files are written in
// those.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

char32_t symbol_from_byte(unsigned char byte);
std::optional<unsigned char> byte_from_symbol(char32_t symbol);

// The bytes a vocabulary entry stands for; nothing when it holds a character that is not in the alphabet.
std::optional<std::string> bytes_from_token(std::string_view token);

}  // namespace lockstep
