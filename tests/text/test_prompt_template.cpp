#include "text/prompt_template.h"

#include <gtest/gtest.h>

#include "text/real_tokenizer.h"

namespace lockstep {
namespace {

TEST(PromptTemplate, GenerateIdsOfTheRealTokenizer) {
  LOCKSTEP_REAL_TOKENIZER(tokenizer);
  const std::vector<int64_t> prefix{151644, 8948, 198, 74785, 279, 2168,   553, 44193,  279, 1894,  11,    6083,
                                    11,     1379, 11,  10434, 11,  12194,  11,  1467,   11,  27979, 11871, 315,
                                    279,    6171, 323, 4004,  25,  151645, 198, 151644, 872, 198};
  const std::vector<int64_t> suffix{151645, 198, 151644, 77091, 198};
  const std::vector<int64_t> words{32, 8251, 9963, 264, 1841, 429, 2727, 23811, 1879};
  std::vector<int64_t> expected = prefix;
  expected.insert(expected.end(), words.begin(), words.end());
  expected.insert(expected.end(), suffix.begin(), suffix.end());
  const PromptTokens tokens = tokenize_prompt(tokenizer, "A cat holding a sign that says hello world");
  EXPECT_EQ(tokens.ids, expected);
  EXPECT_EQ(tokens.drop, static_cast<int>(prefix.size()));
}

TEST(PromptTemplate, EmptyAndBlankPromptsStillGiveRows) {
  LOCKSTEP_REAL_TOKENIZER(tokenizer);
  EXPECT_EQ(tokenize_prompt(tokenizer, "").ids.size(), 39u);
  EXPECT_EQ(tokenize_prompt(tokenizer, " ").ids.size(), 40u);
}

TEST(PromptTemplate, LongPromptsLoseTheirEnd) {
  LOCKSTEP_REAL_TOKENIZER(tokenizer);
  std::string prompt;
  for (int i = 0; i < 3000; ++i) prompt += " cat";
  const PromptTokens tokens = tokenize_prompt(tokenizer, prompt);
  ASSERT_EQ(tokens.ids.size(), 1058u);
  EXPECT_EQ(tokens.ids.back(), 8251);
  // The last that fits whole, and the first that does not.
  EXPECT_EQ(tokenize_prompt(tokenizer, prompt.substr(0, 4 * 1019)).ids.back(), 198);
  EXPECT_EQ(tokenize_prompt(tokenizer, prompt.substr(0, 4 * 1020)).ids.back(), 77091);
}

TEST(PromptTemplate, EditIdsOfTheRealTokenizer) {
  LOCKSTEP_REAL_TOKENIZER(tokenizer);
  const std::vector<int32_t> prefix{
      151644, 8948,  198,   74785, 279,  1376, 4419, 315,   279,  1946,  2168, 320,    3423,  11,     6083, 11,
      1379,   11,    10434, 11,    6171, 11,   4004, 701,   1221, 10339, 1246, 279,    1196,  594,    1467, 7600,
      1265,   11596, 476,   5602,  279,  2168, 13,   19813, 264,  501,   2168, 429,    20027, 279,    1196, 594,
      8502,   1393,  20337, 28137, 448,  279,  4024, 1946,  1380, 8311,  13,   151645, 198,   151644, 872,  198};
  const std::vector<int32_t> picture{24669, 220, 16, 25, 220, 151652, 151655, 151653};
  std::vector<int32_t> ids = tokenizer.encode(apply_template(PromptKind::kEdit, image_placeholders(1, true)));
  ASSERT_EQ(ids.size(), prefix.size() + picture.size() + 5);
  EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.begin() + kEditDrop), prefix);
  EXPECT_EQ(std::vector<int32_t>(ids.begin() + kEditDrop, ids.end() - 5), picture);
  EXPECT_EQ(image_placeholders(2, false),
            "<|vision_start|><|image_pad|><|vision_end|><|vision_start|><|image_pad|><|vision_end|>");
}

}  // namespace
}  // namespace lockstep
