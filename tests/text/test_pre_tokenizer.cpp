// The scanner against the pattern itself, run by PCRE2.
#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "text/char_table.h"

namespace lockstep {
namespace {

using Pieces = std::vector<std::string>;

Pieces scan(std::string_view text) {
  Pieces pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t end = piece_end(text, at);
    pieces.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

class Pattern {
 public:
  Pattern() {
    int error;
    size_t offset;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kQwen2Pattern.data()), kQwen2Pattern.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    match_.reset(pcre2_match_data_create(8, nullptr));
  }
  Pieces split(const std::string& text) const {
    Pieces pieces;
    for (size_t at = 0; at < text.size();) {
      const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                    PCRE2_ANCHORED, match_.get(), nullptr);
      if (found < 1) return {"no match at " + std::to_string(at)};
      const size_t end = pcre2_get_ovector_pointer(match_.get())[1];
      pieces.push_back(text.substr(at, end - at));
      at = end;
    }
    return pieces;
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> match_;
};

TEST(PreTokenizer, EachAlternative) {
  EXPECT_EQ(scan("it's IT'S we'Ve'll"), (Pieces{"it", "'s", " IT", "'S", " we", "'Ve", "'ll"}));
  EXPECT_EQ(scan("'\u017Fo"), (Pieces{"'\u017F", "o"}));  // the long s folds to s
  EXPECT_EQ(scan("don'x 'tis"), (Pieces{"don", "'x", " '", "tis"}));
  EXPECT_EQ(scan("a1234"), (Pieces{"a", "1", "2", "3", "4"}));
  EXPECT_EQ(scan("(word) ...\r\n\nx"), (Pieces{"(word", ")", " ...\r\n\n", "x"}));
  EXPECT_EQ(scan("a  \n  b"), (Pieces{"a", "  \n", " ", " b"}));
  EXPECT_EQ(scan("a   b   "), (Pieces{"a", "  ", " b", "   "}));
  EXPECT_EQ(scan("\tx\t\ty\n z"), (Pieces{"\tx", "\t", "\ty", "\n", " z"}));
  EXPECT_EQ(scan("\u3000\u3000字 5"), (Pieces{"\u3000", "\u3000字", " ", "5"}));
}

TEST(PreTokenizer, EqualsThePattern) {
  const Pattern pattern;
  // Few kinds of characters, so that every short sequence of kinds comes up.
  const std::vector<std::string> alphabet{"a",      "S",      "s", "t", "r",  "e",  "l",      "é",  "你",
                                          "1",      "٣",      "²", " ", "  ", "\n", "\r",     "\t", "\u00A0",
                                          "\u3000", "\u2028", "'", "!", "-",  "😀",  "\u0301", "ſ",  "\u200B"};
  std::mt19937 rng(3);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t n = 1 + rng() % 12; n > 0; --n) text += alphabet[rng() % alphabet.size()];
    ASSERT_EQ(scan(text), pattern.split(text)) << text;
  }
}

TEST(PreTokenizer, EveryByteBelongsToOnePiece) {
  std::mt19937 rng(4);
  for (int round = 0; round < 2000; ++round) {
    std::string text, again;
    for (int n = 0; n < 30; ++n) {
      const char32_t c = rng() % 0x110000;
      if (c < 0xD800 || c >= 0xE000) append_utf8(c, text);
    }
    for (const std::string& piece : scan(text)) {
      ASSERT_FALSE(piece.empty());
      again += piece;
    }
    ASSERT_EQ(again, text);
  }
}

}  // namespace
}  // namespace lockstep
