#include "diagnose/layout/layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

std::string id_of(const Values& candidate, const Values& reference) {
  const auto found = find_rearrangements("net.m", candidate, reference, 1e-5);
  return found.empty() ? "" : std::string(found[0].id.id());
}

TEST(Layouts, TransposedSquare) {
  const Values x = noise({24, 24}, 1);
  EXPECT_EQ(id_of(permuted(x, {1, 0}), x), "layout.axes");
}

TEST(Layouts, StridedReadAsContiguous) {
  const Values x = noise({1, 24, 16}, 1);
  EXPECT_EQ(id_of(reshaped(permuted(x, {0, 2, 1}), x.shape), x), "layout.strided");
}

TEST(Layouts, PatchesOfTwoByTwoTurned) {
  const Values x = noise({1, 20, 64}, 1);
  Values y = x;
  for (int64_t i = 0; i < 20; ++i)
    for (int64_t j = 0; j < 64; ++j)
      y.row(i)[static_cast<size_t>(j)] = x.row(i)[static_cast<size_t>(j / 4 * 4 + j % 2 * 2 + j / 2 % 2)];
  EXPECT_EQ(id_of(y, x), "layout.packing");
}

TEST(Layouts, HalvesExchanged) {
  const Values x = noise({1, 8, 12}, 1);
  Values y = x;
  for (int64_t i = 0; i < 8; ++i)
    for (int64_t j = 0; j < 12; ++j) y.row(i)[static_cast<size_t>(j)] = x.row(i)[static_cast<size_t>((j + 6) % 12)];
  const auto found = find_rearrangements("net.m", y, x, 1e-5);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].id.id(), "layout.parts_exchanged");
  EXPECT_EQ(found[0].words, "halves of the channels in the order 1, 0");
}

// What a projection makes is split into a few parts, and these come in another order.
TEST(Layouts, ThirdsOfTheChannelsComeRound) {
  const Values x = noise({1, 8, 12}, 1);
  Values y = x;
  for (int64_t i = 0; i < 8; ++i)
    for (int64_t j = 0; j < 12; ++j) y.row(i)[static_cast<size_t>(j)] = x.row(i)[static_cast<size_t>((j + 4) % 12)];
  EXPECT_EQ(id_of(y, x), "layout.parts_exchanged");
}

TEST(Layouts, ReversedRolledShiftedRepeated) {
  const Values x = noise({1, 16, 8}, 1);
  const auto moved = [&](auto&& source) {
    Values y = x;
    for (int64_t i = 0; i < 16; ++i) {
      const int64_t from = source(i);
      for (int64_t j = 0; j < 8; ++j)
        y.row(i)[static_cast<size_t>(j)] = from < 0 ? 9.f : x.row(from)[static_cast<size_t>(j)];
    }
    return y;
  };
  EXPECT_EQ(id_of(moved([](int64_t i) { return 15 - i; }), x), "layout.reversed");
  EXPECT_EQ(id_of(moved([](int64_t i) { return (i + 3) % 16; }), x), "layout.rolled");
  // By a whole number of equal parts it is a roll still; halves are exchanged.
  EXPECT_EQ(id_of(moved([](int64_t i) { return (i + 4) % 16; }), x), "layout.rolled");
  EXPECT_EQ(id_of(moved([](int64_t i) { return (i + 14) % 16; }), x), "layout.rolled");
  EXPECT_EQ(id_of(moved([](int64_t i) { return (i + 8) % 16; }), x), "layout.parts_exchanged");
  EXPECT_EQ(id_of(moved([](int64_t i) { return (i ^ 4); }), x), "layout.parts_exchanged");
  EXPECT_EQ(id_of(moved([](int64_t i) { return i - 1; }), x), "layout.shifted");
  EXPECT_EQ(id_of(moved([](int64_t) { return 5; }), x), "layout.repeated");
  EXPECT_EQ(id_of(moved([](int64_t i) { return i % 4 * 4 + i / 4; }), x), "layout.interleaved");
}

// [channels, 2, 2] laid down as [2, channels, 2]: pairs stay together, and are taken in turn.
TEST(Layouts, AFactorInsideThatStays) {
  const Values x = noise({6, 64}, 1);
  EXPECT_EQ(id_of(reshaped(permuted(reshaped(x, {6, 16, 2, 2}), {0, 2, 1, 3}), {6, 64}), x), "layout.interleaved");
  Values heads = x;  // two of four parts
  for (int64_t i = 0; i < 6; ++i)
    std::rotate(heads.row(i).begin() + 16, heads.row(i).begin() + 32, heads.row(i).begin() + 48);
  EXPECT_EQ(id_of(heads, x), "layout.parts_exchanged");
}

// What one of several ranks holds, in the places of the others too: nothing was exchanged.
TEST(Layouts, APartThatComesAgain) {
  const Values x = noise({16, 8}, 1);
  const auto moved = [&](auto&& source) {
    Values y = x;
    for (int64_t i = 0; i < 16; ++i) std::copy_n(x.row(source(i)).begin(), 8, y.row(i).begin());
    return y;
  };
  EXPECT_EQ(id_of(moved([](int64_t i) { return i % 8; }), x), "layout.repeated");
  EXPECT_EQ(id_of(moved([](int64_t i) { return 8 + i % 8; }), x), "layout.repeated");
  EXPECT_EQ(id_of(moved([](int64_t i) { return i % 4; }), x), "layout.repeated");
  EXPECT_EQ(id_of(moved([](int64_t i) { return i < 4 ? i + 4 : i; }), x), "layout.repeated");
  EXPECT_EQ(id_of(moved([](int64_t i) { return i / 2; }), x), "layout.repeated");
  EXPECT_EQ(id_of(moved([](int64_t i) { return i >= 7 && i < 14 ? i - 7 : i; }), x), "layout.repeated");
  EXPECT_EQ(id_of(moved([](int64_t i) { return std::max<int64_t>(i - 2, 0); }), x), "layout.shifted");
  EXPECT_EQ(id_of(moved([](int64_t i) { return (i + 8) % 16; }), x), "layout.parts_exchanged");
  Values vector = noise({64}, 2), twice = vector;
  std::copy_n(vector.v.begin(), 32, twice.v.begin() + 32);
  EXPECT_EQ(id_of(twice, vector), "layout.repeated");
}

TEST(Layouts, PackedLatents) {
  // [1, 4 channels, 6 rows, 4 columns] → tokens of 2 x 2 patches, as the pipeline packs them
  const Values x = noise({1, 4, 6, 4}, 2);
  const Values packed = reshaped(permuted(reshaped(x, {4, 3, 2, 2, 2}), {1, 3, 0, 2, 4}), {1, 6, 16});
  const auto found = find_axis_order(packed, x, 1e-5);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->id.id(), "layout.packing");
  EXPECT_EQ(found->restored.v, packed.v);
}

TEST(Layouts, UnrelatedValuesAreNoLayout) {
  EXPECT_EQ(id_of(noise({1, 24, 16}, 1), noise({1, 24, 16}, 2)), "");
}

// Whatever the tensors are: every bad pair of another shape is asked.
TEST(Layouts, UnrelatedValuesAreToldApartAtOnce) {
  const std::clock_t began = std::clock();
  for (unsigned seed = 0; seed < 200; ++seed)
    for (const double tolerance : {1e-5, 3e-4})
      EXPECT_FALSE(find_axis_order(noise({96, 8, 12}, seed), noise({8, 12, 96}, 100 + seed, 1.2f), tolerance));
  EXPECT_LT(static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC, 4);
}

TEST(Layouts, RoundingDoesNotHideALayout) {
  const Values x = noise({16, 24}, 1);
  EXPECT_EQ(id_of(with_rounding(reshaped(permuted(x, {1, 0}), x.shape), 5, 1e-6f), x), "layout.strided");
}

}  // namespace
}  // namespace lockstep
