#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tensor/totals.h"

namespace lockstep {
namespace {

TEST(Totals, AreThoseOfTheFiniteElementsOneByOne) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(300'001);  // several blocks and a rest
  for (float& value : values) value = normal(random);
  values[5] = std::numeric_limits<float>::infinity();
  values[200'000] = std::numeric_limits<float>::quiet_NaN();
  double sum = 0, absolute = 0, squares = 0;
  for (const float value : values)
    if (std::isfinite(value)) sum += value, absolute += std::fabs(value), squares += static_cast<double>(value) * value;
  const Totals found = totals_of(std::span<const float>(values));
  EXPECT_EQ(found.count, 300'001);
  EXPECT_EQ(found.infinite, 1);
  EXPECT_EQ(found.nan, 1);
  EXPECT_NEAR(found.sum, sum, 1e-6);
  EXPECT_NEAR(found.absolute, absolute, 1e-6);
  EXPECT_NEAR(found.squares, squares, 1e-6);
  EXPECT_FALSE(found.uniform || found.binary);
}

TEST(Totals, SurviveARearrangementAndTellAnotherValueApart) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> values(6000);
  for (float& value : values) value = normal(random);
  const Tensor tensor = Tensor::from<float>({60, 100}, values);
  const Totals straight = totals_of(tensor), turned = totals_of(tensor.transpose(0, 1));
  EXPECT_TRUE(may_agree(straight, turned, 1e-9));
  for (float& value : values) value *= 1.001F;
  EXPECT_FALSE(may_agree(straight, totals_of(std::span<const float>(values)), 1e-4));
}

TEST(Totals, SayWhatProvesNothing) {
  const std::vector<float> alike(100, 3), bits{0, 1, 1, 0};
  EXPECT_TRUE(totals_of(std::span<const float>(alike)).uniform);
  EXPECT_TRUE(totals_of(std::span<const float>(bits)).binary);
  EXPECT_EQ(totals_of(std::span<const float>()).count, 0);
}

}  // namespace
}  // namespace lockstep
