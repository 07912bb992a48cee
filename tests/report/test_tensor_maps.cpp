#include "report/tensor_maps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep {
namespace {

// Maps of one pair, with the block that their cells lie in.
struct Maps {
  MapBlock block;
  Json json;

  Maps(const Tensor& reference, const std::optional<Tensor>& candidate, int64_t side = kLargestMap.side) {
    json = block.add(reference, candidate, {side, kLargestMap.levels, kLargestMap.bins});
  }
  // 0: reference, 1: candidate, 2: difference. Maps of one shape follow each other; others say where they begin.
  std::vector<int> cells(size_t which) const {
    const bool joint = json.at("size").size() == 1;
    const Json& size = json.at("size").at(joint ? 0 : which);
    const size_t count = size.at(0).get<size_t>() * size.at(1).get<size_t>();
    const std::string bytes = block.bytes().substr(size.at(4).get<size_t>() + (joint ? which * count : 0), count);
    std::vector<int> out;
    for (const char byte : bytes) out.push_back(static_cast<int8_t>(byte));
    return out;
  }
  double limit(size_t which) const { return json.at("limits").at(which).get<double>(); }
  // Of a histogram's bin, as the page reads it: a logarithm in a byte.
  int64_t count(size_t side, size_t bin) const {
    const Json& histogram = json.at("histogram");
    const size_t at = histogram.at(3).get<size_t>() + side * histogram.at(4).get<size_t>() + bin;
    return std::lround(std::expm1(static_cast<uint8_t>(block.bytes().at(at)) / 12.0));
  }
};

TEST(TensorMaps, SmallTensorsAreShownElementByElement) {
  const Tensor a = Tensor::from<float>({2, 3}, {0, 1, 2, -4, 0.5, 4});
  const Tensor b = Tensor::from<float>({2, 3}, {0, 1, 2, -4, 0.5, 6});
  const Maps maps(a, b);
  EXPECT_EQ(maps.limit(0), 4);
  EXPECT_EQ(maps.cells(0), (std::vector<int>{0, 32, 64, -127, 16, 127}));
  EXPECT_EQ(maps.cells(1)[5], 127);  // clamped to the reference's scale
  EXPECT_EQ(maps.cells(2), (std::vector<int>{0, 0, 0, 0, 0, 127}));
  EXPECT_EQ(maps.limit(2), 2);
}

TEST(TensorMaps, ACellIsTheValueFarthestFromZero) {
  const int64_t rows = 1000, columns = 700;
  std::vector<float> values(static_cast<size_t>(rows * columns), 0.25f);
  values[static_cast<size_t>(0 * columns + 699)] = -8;
  values[static_cast<size_t>(999 * columns + 0)] = 4;
  const Maps maps(Tensor::from<float>({10, 100, 700}, values), std::nullopt, 20);
  EXPECT_EQ(maps.json["size"][0][2], rows);
  EXPECT_EQ(maps.json["size"][0][3], columns);
  const std::vector<int> cells = maps.cells(0);
  ASSERT_EQ(cells.size(), 400u);
  for (size_t i = 0; i < cells.size(); ++i) EXPECT_EQ(cells[i], i == 19 ? -127 : i == 380 ? 64 : 4) << i;
}

TEST(TensorMaps, StridesAndDtypesAreHonoured) {
  const Tensor a = Tensor::from<float>({2, 3}, {0, 1, 2, -4, 0.5, 4});
  EXPECT_EQ(Maps(a.permute({1, 0}), std::nullopt).cells(0), (std::vector<int>{0, -127, 32, 16, 64, 127}));
  EXPECT_EQ(Maps(a.to(DType::kBF16), a.to(DType::kF64)).limit(2), 0);
}

TEST(TensorMaps, WhatIsNotFiniteIsMarkedAndTheSameOnBothSidesIsNoDifference) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const Tensor a = Tensor::from<float>({4}, {nan, inf, 1, 2}), b = Tensor::from<float>({4}, {nan, inf, nan, 2});
  const Maps maps(a, b);
  EXPECT_EQ(maps.cells(0), (std::vector<int>{-128, -128, 64, 127}));
  EXPECT_EQ(maps.cells(2), (std::vector<int>{0, 0, -128, 0}));
  EXPECT_EQ(maps.json["histogram"][0], 1);
  const Tensor none = Tensor::from<float>({2}, {nan, inf});
  EXPECT_FALSE(Maps(none, none).json.contains("histogram"));
}

TEST(TensorMaps, HistogramsCountBothSidesOverOneRange) {
  const Maps both(Tensor::from<float>({4}, {0, 0, 0, 10}), Tensor::from<float>({4}, {0, 5, 20, 20}));
  EXPECT_EQ(both.json["histogram"][0], 0);
  EXPECT_EQ(both.json["histogram"][1], 20);
  EXPECT_EQ(both.json["histogram"][2], 0);  // every value was counted
  EXPECT_EQ(both.count(0, 0), 3);
  EXPECT_EQ(both.count(1, 63), 2);
  EXPECT_EQ(both.count(0, 32), 1);
  std::vector<float> many(3 << 20);
  std::iota(many.begin(), many.end(), 0.0f);
  const Maps large(Tensor::from<float>({3 << 10, 1 << 10}, many), std::nullopt, 16);
  EXPECT_EQ(large.json["histogram"][2], 1 << 18);  // how many were looked at
  int64_t counted = 0;
  for (size_t bin = 0; bin < kLargestMap.bins; ++bin) counted += large.count(0, bin);
  EXPECT_NEAR(static_cast<double>(counted), 1 << 18, 0.05 * (1 << 18));  // a byte's logarithm holds 8 %
}

TEST(TensorMaps, OddShapes) {
  EXPECT_TRUE(Maps(Tensor::empty(DType::kF32, {0, 4}), std::nullopt, 16).json.is_null());
  EXPECT_EQ(Maps(Tensor::from<float>({}, {3}), std::nullopt, 16).cells(0), (std::vector<int>{127}));
  const Maps other(Tensor::from<float>({2}, {1, 2}), Tensor::from<float>({1, 3}, {1, 2, 3}), 16);
  EXPECT_EQ(other.json["limits"].size(), 2u);  // no difference
  EXPECT_EQ(other.json["size"][1][3], 3);
}

TEST(TensorMaps, ThousandsOfTensorsFitAPage) {
  constexpr int64_t kSmallest = 12;
  for (const int64_t maps : {1, 100, 3000, 9000, 30000}) {
    const MapForm form = map_form(maps);
    EXPECT_GE(form.side, kSmallest);
    EXPECT_LE(form.side, kLargestMap.side);
    const double bits = form.levels == kLargestMap.levels ? 7 : 3.9;
    if (form.side > kSmallest) {
      EXPECT_LE(static_cast<double>(maps * form.side * form.side) * bits, 12e6) << maps;
    }
  }
  EXPECT_GE(map_form(9000).side, 16);  // 3,000 pairs that differ
}

}  // namespace
}  // namespace lockstep
