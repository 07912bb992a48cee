#include "measure/heat_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "measure/value_histogram.h"

namespace lockstep {
namespace {

Tensor counted(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1.0f);
  return Tensor::from<float>(shape, std::span<const float>(values));
}

TEST(HeatMap, IsTheTensorItselfWhereItFits) {
  const HeatMap map = heat_map(counted({2, 3, 4}), {}, 10, 10);
  EXPECT_EQ(map.rows, 6);
  EXPECT_EQ(map.columns, 4);
  EXPECT_EQ(map.height, 6);
  EXPECT_EQ(map.width, 4);
  EXPECT_FALSE(map.sampled);
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(map.cells[i], static_cast<float>(i + 1));
}

TEST(HeatMap, ACellIsTheValueFarthestFromZero) {
  std::vector<float> values(64, 1.0f);
  values[9] = -5;  // row 1, column 1
  values[63] = 3;
  const HeatMap map = heat_map(Tensor::from<float>({8, 8}, std::span<const float>(values)), {}, 2, 2);
  EXPECT_EQ(map.cells, (std::vector<float>{-5, 1, 1, 3}));
  EXPECT_EQ(map.limit(), 5);
}

TEST(HeatMap, AWindowIsAPartOfTheWhole) {
  const Tensor tensor = counted({100, 50});
  const HeatMap whole = heat_map(tensor, {}, 100, 50), part = heat_map(tensor, {20, 10, 5, 7}, 64, 64);
  ASSERT_EQ(part.height, 5);
  ASSERT_EQ(part.width, 7);
  for (int64_t y = 0; y < 5; ++y)
    for (int64_t x = 0; x < 7; ++x)
      EXPECT_EQ(part.cells[static_cast<size_t>(y * 7 + x)], whole.cells[static_cast<size_t>((20 + y) * 50 + 10 + x)]);
}

TEST(HeatMap, AWindowOutsideIsRefused) {
  const Tensor tensor = counted({4, 4});
  for (const MapWindow& window : {MapWindow{4, 0, 1, 1}, MapWindow{0, 4, 1, 1}, MapWindow{2, 0, 3, 1},
                                  MapWindow{-1, 0, 1, 1}, MapWindow{0, 0, 1, 5}, MapWindow{0, 0, -1, 1}})
    EXPECT_THROW(heat_map(tensor, window, 8, 8), Error);
}

TEST(HeatMap, WhatIsNotFiniteIsSeenAndDoesNotCount) {
  const HeatMap map = heat_map(Tensor::from<float>({2, 2}, {1, NAN, INFINITY, -2}), {}, 2, 2);
  EXPECT_TRUE(std::isnan(map.cells[1]) && std::isnan(map.cells[2]));
  EXPECT_EQ(map.limit(), 2);
}

TEST(HeatMap, OddShapes) {
  EXPECT_TRUE(heat_map(Tensor::zeros(DType::kF32, {0, 4}), {}, 8, 8).cells.empty());
  EXPECT_EQ(heat_map(Tensor::from<float>({}, {7}), {}, 8, 8).cells, (std::vector<float>{7}));
  EXPECT_EQ(heat_map(counted({5}), {}, 8, 8).cells.size(), 5u);
  // A strided view: the transposed tensor shows its own rows.
  const HeatMap turned = heat_map(counted({2, 3}).transpose(0, 1), {}, 8, 8);
  EXPECT_EQ(turned.cells, (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST(HeatMap, AHugeTensorIsReadInPart) {
  // 2^36 values that share one: nothing is allocated for them.
  const Tensor one = Tensor::from<float>({1, 1}, {3});
  const Tensor huge = one.broadcast_to({1 << 18, 1 << 18});
  const HeatMap map = heat_map(huge, {}, 64, 64);
  EXPECT_TRUE(map.sampled);
  for (const float cell : map.cells) EXPECT_EQ(cell, 3);
  const HeatMap row = heat_map(one.broadcast_to({2, int64_t{1} << 34}), {}, 4, 4);
  EXPECT_TRUE(row.sampled);
  EXPECT_EQ(row.cells.size(), 8u);
}

TEST(HeatMap, TheDifferenceOfTwo) {
  const HeatMaps maps = heat_maps(Tensor::from<float>({1, 4}, {1, 2, NAN, INFINITY}),
                                  Tensor::from<float>({1, 4}, {1, 5, NAN, INFINITY}), {}, 4, 4);
  EXPECT_EQ(maps.difference.cells, (std::vector<float>{0, 3, 0, 0}));
}

TEST(ValueHistogram, CountsEveryFiniteValueOnOneAxis) {
  const Tensor a = Tensor::from<float>({4}, {0, 1, 2, NAN}), b = Tensor::from<float>({2}, {4, 4});
  const Tensor* const both[] = {&a, &b};
  const auto histogram = value_histogram(both, 4);
  ASSERT_TRUE(histogram);
  EXPECT_EQ(histogram->low, 0);
  EXPECT_EQ(histogram->high, 4);
  EXPECT_EQ(histogram->counts[0], (std::vector<uint32_t>{1, 1, 1, 0}));
  EXPECT_EQ(histogram->counts[1], (std::vector<uint32_t>{0, 0, 0, 2}));
  const Tensor none = Tensor::from<float>({1}, {NAN});
  const Tensor* const odd[] = {&none};
  EXPECT_FALSE(value_histogram(odd, 4));
}

TEST(SliceStatistics, OneForEachChannel) {
  const SliceStatistics rows = slice_statistics(counted({3, 4}), 0, 100),
                        few = slice_statistics(counted({100, 2}), 0, 10);
  ASSERT_EQ(rows.statistics.size(), 3u);
  EXPECT_EQ(rows.statistics[1].min, 5);
  EXPECT_EQ(rows.statistics[1].max, 8);
  EXPECT_FALSE(rows.sampled);
  EXPECT_EQ(few.indices.size(), 10u);
  EXPECT_EQ(few.indices[1], 10);
  EXPECT_TRUE(few.sampled);
}

}  // namespace
}  // namespace lockstep
