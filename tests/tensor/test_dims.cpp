// Dims behaves as a vector does, on both sides of the length up to which its numbers lie in the object itself.
#include <gtest/gtest.h>

#include <random>

#include "tensor/dims.h"

namespace lockstep {
namespace {

using Vector = std::vector<int64_t>;

TEST(Dims, DoesWhatAVectorDoes) {
  std::mt19937 chosen(1);
  const auto below = [&](size_t most) { return static_cast<size_t>(chosen()) % most; };
  Dims dims;
  Vector vector;
  for (int turn = 0; turn < 20000; ++turn) {
    const auto at = static_cast<std::ptrdiff_t>(below(vector.size() + 1)),
               end = at + static_cast<std::ptrdiff_t>(below(vector.size() - static_cast<size_t>(at) + 1));
    const auto value = static_cast<int64_t>(below(5));
    switch (below(8)) {
      case 0:
        dims.push_back(value), vector.push_back(value);
        break;
      case 1:
        if (!vector.empty()) dims.pop_back(), vector.pop_back();
        break;
      case 2:
        EXPECT_EQ(dims.insert(dims.begin() + at, value) - dims.begin(), at);
        vector.insert(vector.begin() + at, value);
        break;
      case 3: {
        const Vector more{7, 8, 9};
        dims.insert(dims.begin() + at, more.begin(), more.end());
        vector.insert(vector.begin() + at, more.begin(), more.end());
        break;
      }
      case 4:
        EXPECT_EQ(dims.erase(dims.begin() + at, dims.begin() + end) - dims.begin(), at);
        vector.erase(vector.begin() + at, vector.begin() + end);
        break;
      case 5: {
        const size_t size = below(12);
        dims.resize(size, value), vector.resize(size, value);
        break;
      }
      case 6:
        EXPECT_EQ(erase(dims, value), std::erase(vector, value));
        break;
      default: {
        const Dims copy = dims;  // and back, through a move
        Dims moved = Dims(copy);
        dims = std::move(moved);
      }
    }
    ASSERT_EQ(dims, Dims(vector));
    ASSERT_EQ(Vector(dims), vector);
    ASSERT_EQ(dims.empty(), vector.empty());
    if (!vector.empty()) {
      ASSERT_EQ(dims.back(), vector.back());
      ASSERT_EQ(dims.at(vector.size() - 1), vector.back());
    }
  }
}

TEST(Dims, OrderAndRefusals) {
  EXPECT_LT((Dims{1, 2}), (Dims{1, 3}));
  EXPECT_LT((Dims{1, 2}), (Dims{1, 2, 0}));
  EXPECT_NE((Dims{1, 2}), (Dims{1, 2, 0}));
  EXPECT_EQ(Dims(3, 5), (Dims{5, 5, 5}));
  EXPECT_THROW((Dims{1, 2}.at(2)), std::out_of_range);
}

}  // namespace
}  // namespace lockstep
