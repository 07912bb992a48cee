#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "text/char_table.h"

namespace lockstep {
namespace {

constexpr char32_t kFirstCombining = 0x300;  // below it everything is its own NFC

// The first position at or after `at` whose character may take part in a normalisation, and the start of the character
// before.
struct Suspect {
  size_t at;
  size_t before;
};

Suspect find_suspect(const CharTable& table, std::string_view text, size_t at) {
  size_t before = at;
  while (at < text.size()) {
    // Eight ASCII bytes at a step.
    while (at + 8 <= text.size()) {
      uint64_t word;
      std::memcpy(&word, text.data() + at, 8);
      if ((word & 0x8080808080808080ull) != 0) break;
      before = at + 7;
      at += 8;
    }
    if (at == text.size()) break;
    const Decoded c = decode_utf8(text.data() + at);
    if (c.code_point >= kFirstCombining && table.may_normalize(c.code_point)) return {at, before};
    before = at;
    at += c.length;
  }
  return {text.size(), text.size()};
}

// utf8proc sorts marks by insertion, quadratic in a run of them: decompose and sort here, and let it only compose.
void append_normalized(const CharTable& table, std::string_view run, std::string& out,
                       std::vector<utf8proc_int32_t>& points) {
  points.clear();
  for (size_t at = 0; at < run.size();) {
    const Decoded c = decode_utf8(run.data() + at);
    at += c.length;
    utf8proc_int32_t parts[8];
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code_point), parts, 8, UTF8PROC_DECOMPOSE, nullptr);
    if (count < 1 || count > 8) fail(Code::kInternal, "tokenizer", "a code point decomposes into too many");
    points.insert(points.end(), parts, parts + count);
  }
  const auto combining = [&table](utf8proc_int32_t c) {
    return table.may_normalize(static_cast<char32_t>(c)) ? utf8proc_get_property(c)->combining_class : 0;
  };
  for (auto first = points.begin(); first != points.end();) {
    const auto last = std::find_if(first, points.end(), [&](utf8proc_int32_t c) { return combining(c) == 0; });
    std::stable_sort(first, last, [&](auto a, auto b) { return combining(a) < combining(b); });
    first = last == points.end() ? last : last + 1;
  }
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (count < 0) fail(Code::kInternal, "tokenizer", "normalisation failed", {.got = utf8proc_errmsg(count)});
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(static_cast<char32_t>(points[i]), out);
}

}  // namespace

std::string_view normalize_nfc(std::string_view text, std::string& buffer) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) return text;
  const CharTable& table = CharTable::get();
  Suspect suspect = find_suspect(table, text, 0);
  if (suspect.at == text.size()) return text;

  buffer.clear();
  buffer.reserve(text.size());
  std::vector<utf8proc_int32_t> points;
  size_t done = 0;
  while (suspect.at < text.size()) {
    buffer.append(text, done, suspect.before - done);
    size_t end = suspect.at;
    while (end < text.size()) {  // up to the next character that stands by itself
      const Decoded c = decode_utf8(text.data() + end);
      if (!table.may_normalize(c.code_point)) break;
      end += c.length;
    }
    append_normalized(table, text.substr(suspect.before, end - suspect.before), buffer, points);
    done = end;
    suspect = find_suspect(table, text, end);
  }
  buffer.append(text, done);
  return buffer;
}

}  // namespace lockstep
