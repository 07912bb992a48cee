#include "text/pre_tokenizer.h"

#include <array>

#include "base/utf8.h"
#include "text/char_table.h"

namespace lockstep {

const std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::array<CharClass, 128> make_ascii() {
  std::array<CharClass, 128> table{};
  for (char c = 'a'; c <= 'z'; ++c) table[static_cast<size_t>(c)] = CharClass::kLetter;
  for (char c = 'A'; c <= 'Z'; ++c) table[static_cast<size_t>(c)] = CharClass::kLetter;
  for (char c = '0'; c <= '9'; ++c) table[static_cast<size_t>(c)] = CharClass::kNumber;
  for (char c = '\t'; c <= '\r'; ++c) table[static_cast<size_t>(c)] = CharClass::kSpace;
  table[' '] = CharClass::kSpace;
  return table;
}
constexpr std::array<CharClass, 128> kAscii = make_ascii();

struct Char {
  CharClass kind;
  uint32_t length;
};

inline Char char_at(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {kAscii[byte], 1};
  const Decoded c = decode_utf8(text.data() + at);
  return {CharTable::get().char_class(c.code_point), c.length};
}

inline bool is_newline(char c) {
  return c == '\r' || c == '\n';
}

size_t skip(std::string_view text, size_t at, CharClass kind) {
  while (at < text.size()) {
    const Char c = char_at(text, at);
    if (c.kind != kind) break;
    at += c.length;
  }
  return at;
}

// Length of 's 't 're 've 'm 'll 'd at `at`, which holds the apostrophe; 0 when there is none. Case is folded by the
// full Unicode rule, under which the long s (U+017F) is an s.
size_t contraction(std::string_view text, size_t at) {
  const auto lower = [&](size_t i) { return i < text.size() ? static_cast<char>(text[i] | 0x20) : '\0'; };
  switch (lower(at + 1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return lower(at + 2) == 'e' ? 3 : 0;
    case 'l':
      return lower(at + 2) == 'l' ? 3 : 0;
    default:
      return text.substr(at + 1, 2) == "\xC5\xBF" ? 3 : 0;
  }
}

// A run of white space starts at `begin`.
size_t space_end(std::string_view text, size_t begin) {
  size_t at = begin, last = begin, after_newline = 0;
  while (at < text.size()) {
    const Char c = char_at(text, at);
    if (c.kind != CharClass::kSpace) break;
    if (is_newline(text[at])) after_newline = at + 1;
    last = at;
    at += c.length;
  }
  if (after_newline != 0) return after_newline;  // \s*[\r\n]+ gives back what follows the last newline
  if (at == text.size() || last == begin) return at;
  return last;  // \s+(?!\S) leaves the last blank to the word that follows
}

}  // namespace

size_t piece_end(std::string_view text, size_t begin) {
  const Char first = char_at(text, begin);
  if (first.kind == CharClass::kLetter) return skip(text, begin + first.length, CharClass::kLetter);
  if (first.kind == CharClass::kNumber) return begin + first.length;
  if (text[begin] == '\'') {
    if (const size_t length = contraction(text, begin); length != 0) return begin + length;
  }
  const size_t second = begin + first.length;
  if (is_newline(text[begin])) return space_end(text, begin);
  if (second < text.size()) {
    const Char next = char_at(text, second);
    if (next.kind == CharClass::kLetter) return skip(text, second + next.length, CharClass::kLetter);
    if (first.kind == CharClass::kSpace && !(text[begin] == ' ' && next.kind == CharClass::kOther))
      return space_end(text, begin);
  } else if (first.kind == CharClass::kSpace) {
    return second;
  }
  size_t end = skip(text, second, CharClass::kOther);
  while (end < text.size() && is_newline(text[end])) ++end;
  return end;
}

}  // namespace lockstep
