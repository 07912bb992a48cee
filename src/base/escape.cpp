#include "base/escape.h"

#include <array>
#include <cstdint>

namespace lockstep {
namespace {

struct Range {
  uint32_t first, last;
};

// Beyond C0: what is not shown, or changes how its neighbours are shown. Joiners (U+200C, U+200D) are left: scripts and
// emoji need them.
constexpr std::array<Range, 13> kUnsafe = {{
    {0x7F, 0x9F},        // DEL and C1: U+009B begins a control sequence as ESC [ does
    {0xAD, 0xAD},        // soft hyphen
    {0x61C, 0x61C},      // Arabic letter mark
    {0x180E, 0x180E},    // Mongolian vowel separator
    {0x200B, 0x200B},    // zero width space
    {0x200E, 0x200F},    // left-to-right and right-to-left mark
    {0x2028, 0x202E},    // line and paragraph separator, bidirectional embeddings and overrides
    {0x2060, 0x206F},    // invisible operators, bidirectional isolates, deprecated format characters
    {0xFEFF, 0xFEFF},    // byte order mark
    {0xFFF9, 0xFFFB},    // interlinear annotation
    {0xFFFE, 0xFFFF},    // noncharacters
    {0xE0000, 0xE007F},  // tags: a hidden alphabet
    {0xF0000, 0x10FFFF}  // private planes
}};

bool is_unsafe(uint32_t point) {
  for (const Range& range : kUnsafe)
    if (point >= range.first && point <= range.last) return true;
  return false;
}

// Bytes of the character at `at`, and which; 0 where there is no well-formed one.
size_t character_at(std::string_view text, size_t at, uint32_t& point) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const size_t bytes = lead < 0x80                   ? 1
                       : lead >= 0xC2 && lead < 0xE0 ? 2
                       : lead >= 0xE0 && lead < 0xF0 ? 3
                       : lead >= 0xF0 && lead < 0xF5 ? 4
                                                     : 0;
  if (bytes == 0 || at + bytes > text.size()) return 0;
  point = bytes == 1 ? lead : lead & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
    point = point << 6 | (byte(at + i) & 0x3F);
  }
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xD800 && point < 0xE000;
  return point < kLeast[bytes] || surrogate || point > 0x10FFFF ? 0 : bytes;
}

void put_hex(std::string& out, uint32_t value, int digits) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kDigits[value >> shift & 15];
}

}  // namespace

std::string escaped(std::string_view text, Keep keep) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    uint32_t point = 0;
    const size_t bytes = character_at(text, at, point);
    const bool wanted = keep == Keep::kLineBreaks && (text[at] == '\n' || text[at] == '\t');
    if (bytes == 0 || (bytes == 1 && !wanted && (point < 0x20 || point == 0x7F))) {
      out += "\\x";
      put_hex(out, static_cast<unsigned char>(text[at]), 2);
    } else if (bytes > 1 && is_unsafe(point)) {
      out += point > 0xFFFF ? "\\U" : "\\u";
      put_hex(out, point, point > 0xFFFF ? 8 : 4);
    } else {
      out += text.substr(at, bytes);
    }
    at += bytes == 0 ? 1 : bytes;
  }
  return out;
}

std::string escaped_in_json(std::string json) {
  // Nearly every document has none: looked for first, so that megabytes are not copied byte by byte.
  const auto next_unsafe = [&](size_t from, uint32_t& point, size_t& bytes) {
    for (size_t at = from; at < json.size(); at += bytes == 0 ? 1 : bytes) {
      bytes = 1;
      const auto byte = static_cast<unsigned char>(json[at]);
      if (byte < 0x7F) continue;
      bytes = character_at(json, at, point);
      if (bytes > 0 && is_unsafe(point)) return at;
    }
    return json.size();
  };
  uint32_t point = 0;
  size_t bytes = 0, at = next_unsafe(0, point, bytes);
  if (at == json.size()) return json;
  std::string out;
  for (size_t from = 0;;) {
    out.append(json, from, at - from);
    if (at == json.size()) return out;
    if (point > 0xFFFF) {
      out += "\\u";
      put_hex(out, 0xD800 + ((point - 0x10000) >> 10), 4);
      point = 0xDC00 + ((point - 0x10000) & 0x3FF);
    }
    out += "\\u";
    put_hex(out, point, 4);
    from = at + bytes;
    at = next_unsafe(from, point, bytes);
  }
}

}  // namespace lockstep
