#include "text/utf8.h"

#include <fmt/format.h>
#include <simdjson.h>

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

}  // namespace

void check_utf8(std::string_view text, std::string_view operation) {
  if (simdjson::validate_utf8(text.data(), text.size())) return;
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = sequence_length(text, at);
    if (length == 0) break;
    at += length;
  }
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

}  // namespace lockstep
