#include "base/base64.h"

namespace lockstep {

std::string base64(std::span<const uint8_t> bytes) {
  static const char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out((bytes.size() + 2) / 3 * 4, '=');
  char* to = out.data();
  size_t i = 0;
  for (; i + 3 <= bytes.size(); i += 3) {
    const uint32_t word = uint32_t{bytes[i]} << 16 | uint32_t{bytes[i + 1]} << 8 | bytes[i + 2];
    for (int shift = 18; shift >= 0; shift -= 6) *to++ = kAlphabet[word >> shift & 63];
  }
  if (const size_t left = bytes.size() - i; left > 0) {  // the digits of what is left; '=' stays behind them
    const uint32_t word = uint32_t{bytes[i]} << 16 | (left > 1 ? uint32_t{bytes[i + 1]} << 8 : 0);
    for (size_t k = 0; k <= left; ++k) *to++ = kAlphabet[word >> (18 - 6 * k) & 63];
  }
  return out;
}

std::optional<std::vector<uint8_t>> bytes_from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const auto digit = [](char c) -> int {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  std::vector<uint8_t> bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const bool last = i + 4 == text.size();
    const size_t digits = last && text[i + 3] == '=' ? (text[i + 2] == '=' ? 2 : 3) : 4;
    uint32_t word = 0;
    for (size_t k = 0; k < 4; ++k) {
      const int value = k < digits ? digit(text[i + k]) : 0;
      if (value < 0) return std::nullopt;
      word = word << 6 | static_cast<uint32_t>(value);
    }
    for (size_t k = 0; k + 1 < digits; ++k) bytes.push_back(static_cast<uint8_t>(word >> (16 - 8 * k) & 255));
  }
  return bytes;
}

}  // namespace lockstep
