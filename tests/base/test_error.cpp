#include "base/error.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Error, AMessageSaysAllItKnowsInOrder) {
  try {
    fail(Code::kBadInput, "read", "x.npy is damaged", {.expected = "A", .got = "B", .hint = "C"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[read] x.npy is damaged; expected A, got B; try C");
  }
}

TEST(Error, BytesThatWouldEndOrSteerTheTextAreShown) {
  try {
    fail(Code::kBadInput, "read", std::string("key 'a\0b\x1b[31m\x7f'\nk\xc3\xa4se", 21));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[read] key 'a\\x00b\\x1b[31m\\x7f'\nk\xc3\xa4se");
  }
}

}  // namespace
}  // namespace lockstep
