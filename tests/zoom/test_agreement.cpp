#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "zoom/agreement.h"
#include "zoom/arithmetic.h"

namespace lockstep::zoom {
namespace {

Numbers counted(const Shape& shape) {
  Numbers out{shape, std::vector<float>(static_cast<size_t>(checked_numel(shape)))};
  for (size_t i = 0; i < out.values.size(); ++i) out.values[i] = std::sin(static_cast<float>(i * i % 1009));
  return out;
}

TEST(Agreement, SameElementsInTheSameOrder) {
  const Numbers a = counted({2, 3, 8});
  EXPECT_EQ(agreement_of(a, a, 1e-6).arrangement, Arrangement::kSame);
  EXPECT_EQ(agreement_of({{1, 2, 3, 8}, a.values}, a, 1e-6).arrangement, Arrangement::kSame);
  EXPECT_EQ(agreement_of({{6, 8}, a.values}, a, 1e-6).arrangement, Arrangement::kFlat);
}

TEST(Agreement, AxesInAnotherOrderAcrossAReshape) {
  const Numbers heads_last = counted({5, 4, 8});  // tokens, heads, channels
  const Numbers heads_first = permute(heads_last, {1, 0, 2});
  EXPECT_EQ(agreement_of(heads_first, heads_last, 1e-6).arrangement, Arrangement::kPermuted);
  EXPECT_EQ(agreement_of({{5, 32}, heads_last.values}, heads_first, 1e-6).arrangement, Arrangement::kPermuted);
}

TEST(Agreement, SlicesInAnotherOrder) {
  const Numbers a = counted({16, 8});
  Numbers halves = a;  // even columns, then odd ones
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column)
      halves.values[static_cast<size_t>(row * 8 + column)] =
          a.values[static_cast<size_t>(row * 8 + (column % 4) * 2 + column / 4)];
  EXPECT_EQ(agreement_of(halves, a, 1e-6).arrangement, Arrangement::kReordered);
}

TEST(Agreement, NothingAgreesWithNothing) {
  EXPECT_TRUE(agreement_of({{0}, {}}, {{0}, {}}, 1e-6));
  EXPECT_FALSE(agreement_of({{0}, {}}, counted({2}), 1e-6));
}

TEST(Agreement, OtherElementsDoNotAgree) {
  const Numbers a = counted({16, 8});
  Numbers b = a;
  b.values[5] += 1;
  EXPECT_FALSE(agreement_of(a, b, 1e-4));
  std::reverse(b.values.begin(), b.values.end());
  EXPECT_FALSE(agreement_of(a, b, 1e-4));
}

TEST(Agreement, SortedValuesProveNothing) {
  Numbers a = counted({16, 16}), b = a;
  std::mt19937 random(1);
  std::shuffle(b.values.begin(), b.values.end(), random);
  EXPECT_TRUE(may_agree(totals_of(a), totals_of(b), 1e-6));
  EXPECT_FALSE(agreement_of(a, b, 1e-6));
}

TEST(Agreement, MasksOfAnySizeAgree) {
  Numbers a = counted({4, 8}), b = a;
  a.values[3] = -INFINITY;
  b.values[3] = -1e9F;
  EXPECT_EQ(agreement_of(a, b, 1e-6).arrangement, Arrangement::kSame);
  b.values[3] = 0;
  EXPECT_FALSE(agreement_of(a, b, 1e-6));
}

}  // namespace
}  // namespace lockstep::zoom
