#include "text/byte_symbols.h"

#include <array>

#include "base/utf8.h"

namespace lockstep {
namespace {

constexpr bool is_printable(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr unsigned kUnprintable = 68;  // bytes that stand for themselves elsewhere; these get U+0100 and up, in order

struct Alphabet {
  std::array<char32_t, 256> symbol{};
  std::array<unsigned char, kUnprintable> unprintable{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  unsigned next = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    alphabet.symbol[byte] = is_printable(byte) ? byte : 256 + next;
    if (!is_printable(byte)) alphabet.unprintable[next++] = static_cast<unsigned char>(byte);
  }
  return alphabet;
}
constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t symbol_from_byte(unsigned char byte) {
  return kAlphabet.symbol[byte];
}

std::optional<unsigned char> byte_from_symbol(char32_t symbol) {
  if (symbol < 256) {
    if (!is_printable(symbol)) return std::nullopt;
    return static_cast<unsigned char>(symbol);
  }
  if (symbol < 256 + kUnprintable) return kAlphabet.unprintable[symbol - 256];
  return std::nullopt;
}

std::optional<std::string> bytes_from_token(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const Decoded c = decode_utf8(token.data() + at);
    const auto byte = byte_from_symbol(c.code_point);
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    at += c.length;
  }
  return bytes;
}

}  // namespace lockstep
