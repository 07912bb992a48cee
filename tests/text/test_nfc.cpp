#include "text/nfc.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "base/utf8.h"
#include "text/char_table.h"
#include "text/unicode_versions.h"

namespace lockstep {
namespace {

std::string nfc(const std::string& text) {
  std::string buffer;
  return std::string(normalize_nfc(text, buffer));
}

std::string utf8proc_nfc(const std::string& text) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::string out(reinterpret_cast<char*>(result), length > 0 ? static_cast<size_t>(length) : 0);
  std::free(result);
  return out;
}

bool is_unknown_mark(char32_t c) {
  for (const auto& range : kUnknownMarks)
    if (c >= range.first && c <= range.last) return true;
  return false;
}

TEST(Nfc, TextThatIsNormalIsNotCopied) {
  std::string buffer;
  const std::string text = "plain, naïve, 你好, 안녕, 🏳️‍🌈";
  EXPECT_EQ(normalize_nfc(text, buffer).data(), text.data());
}

TEST(Nfc, KnownCases) {
  EXPECT_EQ(nfc("e\u0301"), "é");
  EXPECT_EQ(nfc("a\u0301\u0316"), "á\u0316");
  EXPECT_EQ(nfc("\u212B"), "Å");               // a singleton
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");    // a composition that is excluded
  EXPECT_EQ(nfc("\u1100\u1161\u11A8"), "각");  // Hangul
  EXPECT_EQ(nfc("가\u11A8"), "각");
  EXPECT_EQ(nfc("\uF900"), "豈");
  EXPECT_EQ(nfc("\u0301e\u0301"), "\u0301é");  // a mark with nothing before it
}

TEST(Nfc, MarksTheOfficialLibraryDoesNotKnowStay) {
  EXPECT_EQ(nfc("a\u07FD\u0301"), "a\u07FD\u0301");  // by today's rules the acute would reach the a
  EXPECT_EQ(nfc("\U00011935\U00011930"), "\U00011935\U00011930");
}

TEST(Nfc, EveryCodePointAndRandomSequencesEqualUtf8proc) {
  std::mt19937 rng(7);
  std::vector<char32_t> interesting;
  const CharTable& table = CharTable::get();
  for (char32_t c = 1; c < 0x110000; ++c) {
    if ((c >= 0xD800 && c < 0xE000) || is_unknown_mark(c)) continue;
    std::string text = "a";
    append_utf8(c, text);
    text += "\u0316\u0301";
    if (c < 0x40000) {
      ASSERT_EQ(nfc(text), utf8proc_nfc(text)) << std::hex << static_cast<uint32_t>(c);
    }
    if (table.may_normalize(c)) interesting.push_back(c);
  }
  EXPECT_GT(interesting.size(), 1500u);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t n = 1 + rng() % 8; n > 0; --n)
      append_utf8(rng() % 3 == 0 ? U"aeou한가\u0915\u1100"[rng() % 8] : interesting[rng() % interesting.size()], text);
    ASSERT_EQ(nfc(text), utf8proc_nfc(text)) << round;
  }
}

TEST(Nfc, ManyMarksAreSortedInTime) {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += "\u0301\u0316";
  const std::string normal = nfc(text);  // a minute and more if the sort were quadratic
  EXPECT_EQ(normal.substr(0, 6), "á\u0316\u0316");
}

}  // namespace
}  // namespace lockstep
