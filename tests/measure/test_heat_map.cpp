#include "measure/heat_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "measure/slice_statistics.h"
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
  EXPECT_EQ(map.looked_at, 24);
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
  EXPECT_LE(map.looked_at, kSampledElements);
  EXPECT_GT(map.looked_at, kSampledElements / 4);
  for (const float cell : map.cells) EXPECT_EQ(cell, 3);
  const HeatMap row = heat_map(one.broadcast_to({2, int64_t{1} << 34}), {}, 4, 4);
  EXPECT_TRUE(row.sampled);
  EXPECT_EQ(row.cells.size(), 8u);
}

// Rows that are no multiple of the cells: every one is read.
TEST(HeatMap, EveryRowOfASmallTensorCounts) {
  Tensor tensor = Tensor::zeros(DType::kF32, {100, 3});
  for (int64_t row = 0; row < 100; ++row) {
    Tensor one = tensor.clone();
    one.mutable_data<float>()[row * 3 + 1] = 9;
    const HeatMap map = heat_map(one, {}, 64, 3);
    EXPECT_EQ(map.limit(), 9) << row;
    EXPECT_EQ(map.looked_at, 300);
    EXPECT_FALSE(map.sampled);
  }
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

TEST(ValueHistogram, SaysHowManyValuesWereLookedAt) {
  const Tensor small = counted({7, 5}), huge = Tensor::from<float>({1, 1}, {3}).broadcast_to({1 << 18, 1 << 18});
  const Tensor* const one[] = {&small};
  const Tensor* const two[] = {&huge};
  EXPECT_EQ(value_histogram(one, 4)->looked_at, 35);
  EXPECT_FALSE(value_histogram(one, 4)->sampled);
  const auto of_many = value_histogram(two, 4);
  EXPECT_TRUE(of_many->sampled);
  EXPECT_EQ(of_many->looked_at, kSampledElements);
  EXPECT_EQ(of_many->counts[0][2], kSampledElements);
}

TEST(SpreadRuns, AreNeighboursInTheMiddleOfTheirShares) {
  EXPECT_EQ(spread_runs(10, 10, 4).front().count, 10);
  for (const int64_t count : {11, 100, 1001})
    for (const int64_t most : {1, 5, 10})
      for (const int64_t places : {1, 3, 7}) {
        const auto runs = spread_runs(count, most, places);
        ASSERT_LE(static_cast<int64_t>(runs.size()), std::min(places, most));
        int64_t end = 0, all = 0;
        for (const Neighbours& run : runs) {
          EXPECT_GE(run.begin, end);
          EXPECT_GE(run.count, 1);
          end = run.begin + run.count, all += run.count;
        }
        EXPECT_LE(end, count);
        EXPECT_LE(all, most);
        EXPECT_GT(all, most - places);
      }
  const auto runs = spread_runs(1000, 100, 10);
  EXPECT_EQ(runs[3].begin, 345);  // of 300 to 399
}

TEST(ValuesToRead, WhatLiesApartCountsForItsPages) {
  const Tensor one = Tensor::from<float>({1, 1}, {3});
  const auto strided = [&](const Shape& shape, const Strides& strides) {
    return Tensor::wrap(one.strided_data(), DType::kF32, shape, nullptr, strides);
  };
  const int64_t rows = 819200, columns = 3072;
  const Tensor huge = strided({rows, columns}, {columns, 1}), column = strided({rows, 1}, {columns, 1});
  EXPECT_EQ(values_to_read(huge, rows, columns), kSampledElements);
  EXPECT_EQ(values_to_read(huge, 100, columns), 100 * columns);
  EXPECT_EQ(values_to_read(huge, 100, 8), 800);
  EXPECT_LT(values_to_read(huge, rows, 8), rows * 8 / 16);  // each row is a page, though they are few values
  EXPECT_LT(values_to_read(column, rows, 1), rows / 16);
  // What is small is read whole, in whatever order it lies.
  EXPECT_EQ(values_to_read(strided({3072, 1088}, {1, 3072}), 3072, 1088), 3072 * 1088);
  EXPECT_EQ(values_to_read(strided({1088, 3072}, {3072, 1}), 1088, 8), 1088 * 8);
}

TEST(SliceStatistics, OneForEachChannel) {
  const SliceStatistics rows = slice_statistics(counted({3, 4}), 0, 100),
                        few = slice_statistics(counted({100, 2}), 0, 10);
  ASSERT_EQ(rows.mean.size(), 3u);
  EXPECT_EQ(rows.min[1], 5);
  EXPECT_EQ(rows.max[1], 8);
  EXPECT_EQ(rows.mean[1], 6.5);
  EXPECT_NEAR(rows.std[1], 1.1180339887498949, 1e-15);
  EXPECT_FALSE(rows.sampled);
  EXPECT_EQ(rows.looked_at, 12);
  EXPECT_EQ(few.indices.size(), 10u);
  EXPECT_EQ(few.indices[1], 10);
  EXPECT_EQ(few.looked_at, 20);
  EXPECT_TRUE(few.sampled);
}

TEST(SliceStatistics, AreThoseOfTheSliceAlongEveryAxis) {
  Tensor tensor = counted({5, 40, 7, 6});
  float* values = tensor.mutable_data<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) values[i] = 1e6f + static_cast<float>(i * 37 % 101);
  values[0] = NAN, values[77] = INFINITY;
  for (const Tensor& one : {tensor, tensor.transpose(1, 3), tensor.to(DType::kF64)})
    for (int axis = 0; axis < 4; ++axis) {
      const SliceStatistics all = slice_statistics(one, axis, 100);
      ASSERT_EQ(static_cast<int64_t>(all.mean.size()), one.dim(axis));
      EXPECT_EQ(all.looked_at, one.numel());
      for (size_t k = 0; k < all.mean.size(); ++k) {
        const Tensor alone = one.select(axis, static_cast<int64_t>(k)).to(DType::kF64).contiguous();
        std::vector<double> finite;
        for (int64_t i = 0; i < alone.numel(); ++i)
          if (std::isfinite(alone.data<double>()[i])) finite.push_back(alone.data<double>()[i] - 1e6);
        const auto n = static_cast<double>(finite.size());
        const double mean = std::accumulate(finite.begin(), finite.end(), 0.0) / n;
        double squares = 0;
        for (const double value : finite) squares += (value - mean) * (value - mean);
        EXPECT_NEAR(all.mean[k] - 1e6, mean, 1e-9);
        EXPECT_NEAR(all.std[k], std::sqrt(squares / n), 1e-11);
        EXPECT_EQ(all.min[k], 1e6 + *std::min_element(finite.begin(), finite.end()));
        EXPECT_EQ(all.max[k], 1e6 + *std::max_element(finite.begin(), finite.end()));
        EXPECT_EQ(all.bad[k], alone.numel() - static_cast<int64_t>(finite.size()));
      }
    }
}

// Of a tensor that is too large to be read whole, along each axis: every slice says what its values are.
TEST(SliceStatistics, OfAHugeTensorEachSliceIsItsOwn) {
  const Tensor lines = counted({64, 1}).broadcast_to({64, int64_t{1} << 30});
  const SliceStatistics down = slice_statistics(lines, 0, 4096),
                        last = slice_statistics(counted({1, 64}).broadcast_to({int64_t{1} << 30, 64}), 1, 4096),
                        many = slice_statistics(lines, 1, 4096);
  for (const SliceStatistics* one : {&down, &last}) {
    ASSERT_EQ(one->mean.size(), 64u);
    EXPECT_TRUE(one->sampled);
    EXPECT_LE(one->looked_at, kSampledElements);
    EXPECT_GT(one->looked_at, kSampledElements / 4);
    for (size_t k = 0; k < 64; ++k) {
      EXPECT_EQ(one->mean[k], static_cast<double>(k + 1));
      EXPECT_EQ(one->std[k], 0);
    }
  }
  EXPECT_EQ(many.indices.size(), 1024u);
  EXPECT_LE(many.looked_at, kSampledElements);
}

}  // namespace
}  // namespace lockstep
