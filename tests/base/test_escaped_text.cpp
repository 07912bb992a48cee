// Text from outside: what is escaped, and that there is no way round it.
#include <gtest/gtest.h>

#include <type_traits>

#include "base/message.h"
#include "base/shown_json.h"
#include "base/text.h"

namespace lockstep {
namespace {

TEST(EscapedText, ControlsOverridesAndBrokenBytesAreSeen) {
  EXPECT_EQ(escaped("plain größe 日本 🙂"), "plain größe 日本 🙂");
  EXPECT_EQ(escaped(std::string_view("a\0b\x1b[31m\x07\x7f\n\t", 12)), "a\\x00b\\x1b[31m\\x07\\x7f\\x0a\\x09");
  EXPECT_EQ(escaped("a\nb\tc\r", Keep::kLineBreaks), "a\nb\tc\\x0d");
  EXPECT_EQ(escaped("\xc2\x9b"
                    "31m"),
            "\\u009b31m")
      << "a C1 control sequence introducer";
  EXPECT_EQ(escaped("\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8\xef\xbb\xbf"), "\\u202e\\u2066\\u2028\\ufeff");
  EXPECT_EQ(escaped("\xf3\xa0\x81\x81"), "\\U000e0041") << "a tag character";
  EXPECT_EQ(escaped("\x9b\xff\xc0\xaf\xed\xa0\x80\xf5"), "\\x9b\\xff\\xc0\\xaf\\xed\\xa0\\x80\\xf5");
  EXPECT_EQ(escaped("\xe2\x80"), "\\xe2\\x80") << "cut off";
}

TEST(EscapedText, StringsInATextAreEscapedAndTextsAreNot) {
  const std::string evil = "a\x1b[31m\nlockstep: done";
  EXPECT_EQ(Text::of("{}: {:<5}|{}\n", evil, "ab", 7).string(), "a\\x1b[31m\\x0alockstep: done: ab   |7\n");
  EXPECT_EQ(Text::of("{}", Text::trusted("\x1b[1m")).string(), "\x1b[1m");
  EXPECT_EQ((Text("name ") + Text(evil)).string(), "name a\\x1b[31m\\x0alockstep: done");
  EXPECT_EQ(Text::from_lines("one\nlockstep: two\n\x1b").string(), "one\n  lockstep: two\n  \\x1b");
  EXPECT_EQ(joined(std::vector<std::string>{"a\n", "b"}, ", ").string(), "a\\x0a, b");
}

TEST(EscapedText, WhatWasPutTogetherElsewhereIsNoText) {
  static_assert(!std::is_convertible_v<std::string&&, Text>, "it may hold words of ours: Text::of");
  static_assert(!std::is_constructible_v<Text, char(&)[8]>, "a buffer is no literal");
  static_assert(!std::is_convertible_v<const char*, Text>);
}

TEST(EscapedText, JsonKeepsTheStringItself) {
  const Json document{{"a\xe2\x80\xae", "b\xc2\x9b\x1b\xf3\xa0\x81\x81"}};
  const std::string text = shown_json(document);
  EXPECT_EQ(text, R"({"a\u202e":"b\u009b\u001b\udb40\udc41"})");
  EXPECT_EQ(parse_json(text, "test"), document);
  EXPECT_EQ(with_strings_escaped(document), (Json{{"a\\u202e", "b\\u009b\\x1b\\U000e0041"}}));
}

TEST(Message, DepthIsBounded) {
  EXPECT_TRUE(json_message(R"({"a":[1,2]})"));
  EXPECT_FALSE(json_message("{"));
  EXPECT_FALSE(json_message(std::string(500'000, '[')));
  EXPECT_FALSE(json_message(std::string(200, '[') + std::string(200, ']')));
}

}  // namespace
}  // namespace lockstep
