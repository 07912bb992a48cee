// What the tokenizer asks about a code point: is it a letter, a number, white space or something else, and may it take
// part in a normalisation. One byte each, from utf8proc (and unicode_versions.h), laid out once on first use.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace lockstep {

enum class CharClass : uint8_t { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };

class CharTable {
 public:
  static const CharTable& get();

  CharClass char_class(char32_t code_point) const { return static_cast<CharClass>(entry(code_point) & kClassMask); }
  // False: the code point stands in NFC whatever precedes it, so that normalisation may be cut before it.
  bool may_normalize(char32_t code_point) const { return (entry(code_point) & kMayNormalize) != 0; }

 private:
  static constexpr uint8_t kClassMask = 3, kMayNormalize = 4;
  static constexpr uint32_t kPageBits = 8, kPages = 0x110000 >> kPageBits;
  using Page = std::array<uint8_t, 1 << kPageBits>;

  CharTable();
  uint8_t entry(char32_t code_point) const {
    return pages_[page_of_[code_point >> kPageBits]][code_point & ((1 << kPageBits) - 1)];
  }
  void set(char32_t code_point, uint8_t bits, uint8_t cleared = 0);

  std::array<uint16_t, kPages> page_of_{};  // page 0 is all zero
  std::vector<Page> pages_;
};

}  // namespace lockstep
