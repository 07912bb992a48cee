// UTF-8: one check at the door, then decoding that trusts it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

bool is_valid_utf8(std::string_view text);  // no overlong forms, no surrogates, nothing beyond U+10FFFF

// Throws kBadInput with the offset of the first byte that is not UTF-8 (overlong forms, surrogates and code points
// beyond U+10FFFF are not).
void check_utf8(std::string_view text, std::string_view operation);

struct Decoded {
  char32_t code_point;
  uint32_t length;  // bytes
};

// The code point at `at`. Only for text that passed check_utf8.
inline Decoded decode_utf8(const char* at) {
  const auto byte = [at](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(at[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// The text with U+FFFD in place of every longest beginning of a character that does not go on as it should.
std::string valid_utf8(std::string_view bytes);
std::string stripped(std::string_view utf8);  // without Unicode's blanks at either end

void append_utf8(char32_t code_point, std::string& out);

}  // namespace lockstep
