#include "base/sha256.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// FIPS 180-4 and RFC 4231.
TEST(Sha256, AuthenticatesAsTheStandardSays) {
  EXPECT_EQ(hmac_sha256_hex("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac_sha256_hex(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Sha256, DigestsEveryLengthOfABlock) {
  const auto empty = sha256("");
  EXPECT_EQ(empty[0], 0xe3);
  EXPECT_EQ(empty[31], 0x55);
  const auto two_blocks = sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq");
  EXPECT_EQ(two_blocks[0], 0x24);
  EXPECT_EQ(two_blocks[31], 0xc1);
  EXPECT_NE(sha256(std::string(55, 'a')), sha256(std::string(56, 'a')));
}

TEST(Sha256, SecretsAreTheSameOrNot) {
  EXPECT_TRUE(same_secret("abc", "abc"));
  for (const char* wrong : {"", "ab", "abd", "abcabc"}) EXPECT_FALSE(same_secret(wrong, "abc"));
  EXPECT_FALSE(same_secret("", ""));
}

}  // namespace
}  // namespace lockstep
