#include "base/names.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(Names, Globs) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("transformer_blocks.*.attn.*", "transformer_blocks.7.attn.to_q"));
  EXPECT_FALSE(glob_match("transformer_blocks.*.attn", "transformer_blocks.7.attn.to_q"));
  EXPECT_TRUE(glob_match("a?c[0-9][!x]", "abc5y"));
  EXPECT_FALSE(glob_match("a?c[0-9][!x]", "abc5x"));
  EXPECT_FALSE(glob_match("a", ""));
  EXPECT_TRUE(glob_match("**a**", "bab"));
  EXPECT_FALSE(glob_match("[", "a"));
  std::string stars(200, '*');
  stars += 'b';
  EXPECT_FALSE(glob_match(stars, std::string(10'000, 'a')));  // and at once
}

TEST(Names, TheNearestComeFirst) {
  const std::vector<std::string> known = {"blocks.0.to_q", "blocks.0.to_k", "blocks.10.to_q", "norm"};
  EXPECT_EQ(nearest_names("blocks.0.to_w", known, 2), (std::vector<std::string>{"blocks.0.to_k", "blocks.0.to_q"}));
  EXPECT_TRUE(nearest_names("something quite different", known).empty());
}

TEST(Errors, ReadAsOneSentence) {
  try {
    fail(Code::kBadInput, "op", "what", {.expected = "A", .got = "B", .hint = "C"});
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[op] what; expected A, got B; try C");
    EXPECT_EQ(exit_status(error.code()), 2);
    EXPECT_EQ(code_name(error.code()), "bad_input");
  }
}

}  // namespace
}  // namespace lockstep
