#include "base/utf8.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {

// Bytes of the well-formed sequence at `at`, 0 when there is none. The ranges are table 3-7 of the Unicode standard.
size_t sequence_length(std::string_view text, size_t at) {
  const auto in = [&](size_t i, unsigned low, unsigned high) {
    if (at + i >= text.size()) return false;
    const unsigned byte = static_cast<unsigned char>(text[at + i]);
    return byte >= low && byte <= high;
  };
  const unsigned lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return in(1, 0x80, 0xBF) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80, high = lead == 0xED ? 0x9F : 0xBF;
    return in(1, low, high) && in(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90 : 0x80, high = lead == 0xF4 ? 0x8F : 0xBF;
    return in(1, low, high) && in(2, 0x80, 0xBF) && in(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

// How many bytes at the beginning are UTF-8.
size_t valid_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = sequence_length(text, at);
    if (length == 0) break;
    at += length;
  }
  return at;
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  return valid_bytes(text) == text.size();
}

void check_utf8(std::string_view text, std::string_view operation) {
  const size_t at = valid_bytes(text);
  if (at == text.size()) return;
  fail(Code::kBadInput, operation, fmt::format("the text is not UTF-8 at byte {}", at),
       {.expected = "UTF-8",
        .got = fmt::format("byte 0x{:02X}", static_cast<unsigned char>(text[at])),
        .hint = "converting the text to UTF-8, for instance with iconv"});
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::string valid_utf8(std::string_view bytes) {
  std::string text;
  size_t at = 0;
  const auto byte = [&](size_t i) -> unsigned { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0; };
  while (at < bytes.size()) {
    const unsigned lead = byte(at);
    const size_t length = lead < 0x80 ? 1 : lead >= 0xC2 && lead < 0xE0 ? 2 : lead >= 0xE0 && lead < 0xF0 ? 3 : 4;
    // The second byte's range keeps out overlong forms, surrogates and what lies beyond U+10FFFF.
    const unsigned lowest = lead == 0xE0   ? 0xA0
                            : lead == 0xF0 ? 0x90
                                           : 0x80,
                   highest = lead == 0xED   ? 0x9F
                             : lead == 0xF4 ? 0x8F
                                            : 0xBF;
    size_t good = lead < 0x80 || (lead >= 0xC2 && lead <= 0xF4) ? 1 : 0;
    while (good > 0 && good < length && byte(at + good) >= (good == 1 ? lowest : 0x80u) &&
           byte(at + good) <= (good == 1 ? highest : 0xBFu))
      ++good;
    if (good == length)
      text += bytes.substr(at, length);
    else
      append_utf8(0xFFFD, text);
    at += good > 0 ? good : 1;
  }
  return text;
}

std::string stripped(std::string_view utf8) {
  const auto blank = [](char32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
  };
  size_t begin = utf8.size(), end = 0;
  for (size_t at = 0; at < utf8.size();) {
    const Decoded character = decode_utf8(utf8.data() + at);
    if (!blank(character.code_point)) {
      begin = std::min(begin, at);
      end = at + character.length;
    }
    at += character.length;
  }
  return begin < end ? std::string(utf8.substr(begin, end - begin)) : std::string();
}

}  // namespace lockstep
