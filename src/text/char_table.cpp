#include "text/char_table.h"

#include <utf8proc.h>

#include <array>

#include "text/unicode_versions.h"

namespace lockstep {
namespace {

bool is_space(char32_t c) {  // the property White_Space
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

CharClass class_of(const utf8proc_property_t& property, char32_t c) {
  switch (property.category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::kNumber;
    default:
      return is_space(c) ? CharClass::kSpace : CharClass::kOther;
  }
}

// Planes 4 to 13 hold no character and planes 15 and 16 none with a property; the table skips them.
constexpr std::array<std::array<char32_t, 2>, 2> kAssigned{{{0, 0x40000}, {0xE0000, 0xE1000}}};
constexpr char32_t kHangulFirst = 0xAC00, kHangulLast = 0xD7A3;

}  // namespace

const CharTable& CharTable::get() {
  static const CharTable table;
  return table;
}

void CharTable::set(char32_t code_point, uint8_t bits, uint8_t cleared) {
  uint16_t& page = page_of_[code_point >> kPageBits];
  if (page == 0) {
    page = static_cast<uint16_t>(pages_.size());
    pages_.emplace_back();
  }
  uint8_t& entry = pages_[page][code_point & ((1 << kPageBits) - 1)];
  entry = static_cast<uint8_t>((entry & ~cleared) | bits);
}

CharTable::CharTable() {
  pages_.reserve(kPages / 4);
  pages_.emplace_back();
  for (const auto [first, end] : kAssigned) {
    for (char32_t c = first; c < end; ++c) {
      const utf8proc_property_t& property = *utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
      const auto bits = static_cast<uint8_t>(class_of(property, c));
      if (bits != 0) set(c, bits);
      if (property.combining_class != 0) set(c, kMayNormalize);
      // Hangul syllables decompose by arithmetic and always compose again.
      const bool decomposes = property.decomp_type == 0 && property.decomp_seqindex != UINT16_MAX;
      if (!decomposes || (c >= kHangulFirst && c <= kHangulLast)) continue;
      utf8proc_int32_t parts[8];
      const utf8proc_ssize_t count =
          utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 8, UTF8PROC_DECOMPOSE, nullptr);
      if (count < 1 || count > 8) continue;
      const utf8proc_int32_t last = parts[count - 1];
      const utf8proc_ssize_t composed =
          utf8proc_normalize_utf32(parts, count, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
      if (composed == 1 && parts[0] == static_cast<utf8proc_int32_t>(c)) {
        set(static_cast<char32_t>(last), kMayNormalize);  // it composes with what precedes it
      } else {
        set(c, kMayNormalize);  // never stands in NFC
      }
    }
  }
  for (char32_t c = 0x1161; c <= 0x1175; ++c) set(c, kMayNormalize);  // Hangul vowels
  for (char32_t c = 0x11A8; c <= 0x11C2; ++c) set(c, kMayNormalize);  // and trailing consonants

  const auto set_range = [this](const CodePointRange& range, uint8_t bits, uint8_t cleared) {
    for (char32_t c = range.first; c <= range.last; ++c) set(c, bits, cleared);
  };
  for (const auto& range : kNewLetters) set_range(range, static_cast<uint8_t>(CharClass::kLetter), kClassMask);
  for (const auto& range : kNewNumbers) set_range(range, static_cast<uint8_t>(CharClass::kNumber), kClassMask);
  for (const auto& range : kUnknownMarks) set_range(range, 0, kMayNormalize);
}

}  // namespace lockstep
