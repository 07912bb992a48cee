#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "text/real_tokenizer.h"
#include "text/small_tokenizer.h"

namespace lockstep {
namespace {

using Ids = std::vector<int32_t>;

Tokenizer small_tokenizer(const Json& json = small_tokenizer_json()) {
  return Tokenizer(parse_tokenizer_json(json.dump(), "test"));
}

template <typename Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Tokenizer, MergesByRankLeftmostFirst) {
  const Tokenizer tokenizer = small_tokenizer();
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{256}));
  EXPECT_EQ(tokenizer.encode("abab"), (Ids{257}));
  EXPECT_EQ(tokenizer.encode("ababab"), (Ids{257, 256}));
  EXPECT_EQ(tokenizer.encode("aab"), (Ids{'a', 256}));  // "ab" outranks "aa"
  EXPECT_EQ(tokenizer.encode("aaa"), (Ids{258, 'a'}));
  EXPECT_EQ(tokenizer.encode(" ab"), (Ids{259}));
  EXPECT_EQ(tokenizer.encode(" abab"), (Ids{' ', 257}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
}

TEST(Tokenizer, LongPiecesEqualShortOnes) {
  // The heap serves pieces beyond 48 bytes; a plain reading of the rule is the judge of both.
  const std::vector<std::pair<std::string, std::string>> merges{{"a", "b"},  {"ab", "ab"}, {"b", "a"},  {"a", "a"},
                                                                {"ba", "b"}, {"aa", "aa"}, {"c", "ab"}, {"abab", "a"}};
  const Tokenizer tokenizer = small_tokenizer(small_tokenizer_json(merges));
  std::mt19937 rng(1);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const size_t length = 1 + rng() % 200;
    while (text.size() < length) text += "aabbc"[rng() % 5];
    std::vector<std::string> parts;
    for (const char c : text) parts.emplace_back(1, c);
    for (;;) {
      size_t best = merges.size(), where = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i)
        for (size_t rank = 0; rank < best; ++rank)
          if (merges[rank].first == parts[i] && merges[rank].second == parts[i + 1]) best = rank, where = i;
      if (best == merges.size()) break;
      parts[where] += parts[where + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(where) + 1);
    }
    Ids expected;
    for (const std::string& part : parts) expected.push_back(*tokenizer.id_of(part));
    ASSERT_EQ(tokenizer.encode(text), expected) << text;
  }
}

TEST(Tokenizer, AMillionBytesInOnePiece) {
  const Ids ids = small_tokenizer().encode(std::string(1 << 20, 'a'));
  EXPECT_EQ(ids.size(), size_t{1} << 19);
  EXPECT_EQ(ids.front(), 258);
}

TEST(Tokenizer, AddedTokensAreCutOutFirstLongestWins) {
  const Tokenizer tokenizer = small_tokenizer();
  EXPECT_EQ(tokenizer.encode("ab<|x|>ab"), (Ids{256, 261, 256}));
  EXPECT_EQ(tokenizer.encode("<|x|>y<|x|><|x"), (Ids{262, 261, '<', '|', 'x'}));
  EXPECT_EQ(tokenizer.encode("e\u0301!"), (Ids{263}));  // found in the normalised text
  EXPECT_EQ(tokenizer.encode("e\u0301"), (Ids{260}));
}

TEST(Tokenizer, DecodeGivesTheBytesBack) {
  const Tokenizer tokenizer = small_tokenizer();
  const std::string text = "ab <|x|> aab\r\n你好 é 🏳️‍🌈 <|x|>y";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  EXPECT_EQ(error_of([&] { tokenizer.decode(Ids{99999}); }),
            "[tokenizer] there is no token 99999; expected an id below 264");
}

TEST(Tokenizer, RepeatedPiecesComeFromTheCacheUnchanged) {
  const Tokenizer tokenizer = small_tokenizer();
  std::mt19937 rng(2);
  std::string text;
  Ids expected;
  for (int i = 0; i < 20000; ++i) {
    std::string piece = " ";
    for (size_t n = 1 + rng() % 4; n > 0; --n) piece += "abé"[rng() % 2];
    const Ids ids = tokenizer.encode(piece);
    text += piece;
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(tokenizer.encode(text), expected);
}

TEST(Tokenizer, TextThatIsNotUtf8IsRefusedWithTheOffset) {
  const Tokenizer tokenizer = small_tokenizer();
  const auto encode = [&](std::string_view text) { return error_of([&] { tokenizer.encode(text); }); };
  EXPECT_EQ(
      encode("abc\xFF"),
      "[tokenizer] the text is not UTF-8 at byte 3; expected UTF-8, got byte 0xFF; try converting the text to UTF-8, "
      "for instance with iconv");
  for (const std::string_view bad :
       {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC3", "\xE4\xBD", "\x80"})
    EXPECT_NE(encode(bad).find("at byte 0;"), std::string::npos);
}

TEST(TokenizerFile, HostileFiles) {
  const auto parse = [](const std::string& text) { return error_of([&] { parse_tokenizer_json(text, "test"); }); };
  EXPECT_EQ(parse(""), "[tokenizer] test is not valid JSON: Empty: no JSON found");
  EXPECT_NE(parse(std::string(100000, '[')).find("not valid JSON"), std::string::npos);
  EXPECT_NE(parse("[]").find("the document is wrong; expected an object"), std::string::npos);
  EXPECT_NE(parse("{}").find("expected \"model\", got nothing"), std::string::npos);

  const auto with = [](const char* pointer, const Json& value) {
    Json json = small_tokenizer_json();
    json[Json::json_pointer(pointer)] = value;
    return error_of([&] { small_tokenizer(json); });
  };
  EXPECT_EQ(with("/model/vocab/a", 98), "[tokenizer] the id 98 belongs to two tokens, \"a\" and \"b\"");
  EXPECT_NE(with("/model/vocab/a", -1).find("out of range"), std::string::npos);
  EXPECT_NE(with("/model/vocab/a", 1ll << 33).find("out of range"), std::string::npos);
  EXPECT_NE(with("/model/vocab/a", 1.5).find("model.vocab.a is wrong; expected an id, got 1.5"), std::string::npos);
  EXPECT_NE(with("/added_tokens/0/id", 97).find("the id 97 belongs to two tokens"), std::string::npos);
  EXPECT_NE(with("/model/merges/0", "a  b").find("merge 0 is wrong"), std::string::npos);
  EXPECT_NE(with("/model/merges/0", {"a", "b", "c"}).find("entries \"a b\" or"), std::string::npos);
}

TEST(TokenizerFile, SaysWhatItDoesNotSupport) {
  const auto with = [](const char* pointer, const Json& value) {
    Json json = small_tokenizer_json();
    json[Json::json_pointer(pointer)] = value;
    return error_of([&] { small_tokenizer(json); });
  };
  EXPECT_EQ(with("/model/type", "WordPiece"),
            "[tokenizer] test: model.type is not supported; expected BPE, got \"WordPiece\"");
  EXPECT_EQ(with("/normalizer/type", "NFD"),
            "[tokenizer] test: normalizer is not supported; expected NFC, got {\"type\":\"NFD\"}");
  EXPECT_NE(with("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+").find("pattern is not supported"),
            std::string::npos);
  EXPECT_NE(with("/added_tokens/1/rstrip", true).find("added_tokens.1.rstrip is not supported"), std::string::npos);
}

TEST(Tokenizer, KnownIdsOfTheRealTokenizer) {
  LOCKSTEP_REAL_TOKENIZER(tokenizer);
  EXPECT_EQ(tokenizer.encode("A cinematic photo of a cat"), (Ids{32, 64665, 6548, 315, 264, 8251}));
  EXPECT_EQ(tokenizer.encode("通义千问，你好！"), (Ids{31935, 64559, 99320, 56007, 3837, 108386, 6313}));
  EXPECT_EQ(tokenizer.vocab_size(), 151665u);
  EXPECT_EQ(tokenizer.id_of("<|file_sep|>"), 151664);
}

}  // namespace
}  // namespace lockstep
