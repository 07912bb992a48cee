#include "report/tensor_maps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep {
namespace {

// The signed bytes of a map, decoded by a table of our own.
std::vector<int> cells_of(const Json& map) {
  const std::string text = map.at("cells").get<std::string>();
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<int> out;
  for (size_t i = 0; i + 3 < text.size(); i += 4) {
    uint32_t word = 0;
    int bytes = 3;
    for (size_t k = 0; k < 4; ++k) {
      if (text[i + k] == '=') --bytes;
      word = word << 6 | static_cast<uint32_t>(text[i + k] == '=' ? 0 : alphabet.find(text[i + k]));
    }
    for (int k = 0; k < bytes; ++k) out.push_back(static_cast<int8_t>(word >> (16 - 8 * k) & 0xFF));
  }
  return out;
}

TEST(TensorMaps, SmallTensorsAreShownElementByElement) {
  const Tensor a = Tensor::from<float>({2, 3}, {0, 1, 2, -4, 0.5, 4});
  const Tensor b = Tensor::from<float>({2, 3}, {0, 1, 2, -4, 0.5, 6});
  const Json maps = tensor_maps(a, b, kLargestMap);
  EXPECT_EQ(maps["reference"]["limit"], 4);
  EXPECT_EQ(cells_of(maps["reference"]), (std::vector<int>{0, 32, 64, -127, 16, 127}));
  EXPECT_EQ(cells_of(maps["candidate"])[5], 127);  // clamped to the reference's scale
  EXPECT_EQ(cells_of(maps["difference"]), (std::vector<int>{0, 0, 0, 0, 0, 127}));
  EXPECT_EQ(maps["difference"]["limit"], 2);
}

TEST(TensorMaps, ACellIsTheValueFarthestFromZero) {
  const int64_t rows = 1000, columns = 700;
  std::vector<float> values(static_cast<size_t>(rows * columns), 0.25f);
  values[static_cast<size_t>(0 * columns + 699)] = -8;
  values[static_cast<size_t>(999 * columns + 0)] = 4;
  const Json map = tensor_maps(Tensor::from<float>({10, 100, 700}, values), std::nullopt, 20)["reference"];
  EXPECT_EQ(map["rows"], rows);
  EXPECT_EQ(map["columns"], columns);
  const std::vector<int> cells = cells_of(map);
  ASSERT_EQ(cells.size(), 400u);
  for (size_t i = 0; i < cells.size(); ++i) EXPECT_EQ(cells[i], i == 19 ? -127 : i == 380 ? 64 : 4) << i;
}

TEST(TensorMaps, StridesAndDtypesAreHonoured) {
  const Tensor a = Tensor::from<float>({2, 3}, {0, 1, 2, -4, 0.5, 4});
  const Json turned = tensor_maps(a.permute({1, 0}), std::nullopt, kLargestMap);
  EXPECT_EQ(cells_of(turned["reference"]), (std::vector<int>{0, -127, 32, 16, 64, 127}));
  EXPECT_EQ(tensor_maps(a.to(DType::kBF16), a.to(DType::kF64), kLargestMap)["difference"]["limit"], 0);
}

TEST(TensorMaps, WhatIsNotFiniteIsMarkedAndTheSameOnBothSidesIsNoDifference) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const Tensor a = Tensor::from<float>({4}, {nan, inf, 1, 2}), b = Tensor::from<float>({4}, {nan, inf, nan, 2});
  const Json maps = tensor_maps(a, b, kLargestMap);
  EXPECT_EQ(cells_of(maps["reference"]), (std::vector<int>{-128, -128, 64, 127}));
  EXPECT_EQ(cells_of(maps["difference"]), (std::vector<int>{0, 0, -128, 0}));
  EXPECT_EQ(maps["histogram"]["low"], 1);
  const Tensor none = Tensor::from<float>({2}, {nan, inf});
  EXPECT_TRUE(tensor_maps(none, none, kLargestMap)["histogram"].is_null());
}

TEST(TensorMaps, HistogramsCountBothSidesOverOneRange) {
  const Json both = tensor_maps(Tensor::from<float>({4}, {0, 0, 0, 10}), Tensor::from<float>({4}, {0, 5, 20, 20}),
                                kLargestMap)["histogram"];
  EXPECT_EQ(both["low"], 0);
  EXPECT_EQ(both["high"], 20);
  EXPECT_EQ(both["reference"][0], 3);
  EXPECT_EQ(both["candidate"][63], 2);
  EXPECT_EQ(both["reference"][32], 1);
  std::vector<float> many(3 << 20);
  std::iota(many.begin(), many.end(), 0.0f);
  const Json large = tensor_maps(Tensor::from<float>({3 << 10, 1 << 10}, many), std::nullopt, 16)["histogram"];
  EXPECT_EQ(large["sampled"], true);
  int64_t counted = 0;
  for (const Json& bin : large["reference"]) counted += bin.get<int64_t>();
  EXPECT_EQ(counted, 1 << 18);
}

TEST(TensorMaps, OddShapes) {
  EXPECT_TRUE(tensor_maps(Tensor::empty(DType::kF32, {0, 4}), std::nullopt, 16).is_null());
  EXPECT_EQ(cells_of(tensor_maps(Tensor::from<float>({}, {3}), std::nullopt, 16)["reference"]),
            (std::vector<int>{127}));
  const Json other = tensor_maps(Tensor::from<float>({2}, {1, 2}), Tensor::from<float>({1, 3}, {1, 2, 3}), 16);
  EXPECT_FALSE(other.contains("difference"));
  EXPECT_EQ(other["candidate"]["columns"], 3);
}

TEST(TensorMaps, ThousandsOfTensorsFitAPage) {
  for (const int64_t maps : {1, 100, 3000, 9000, 30000}) {
    const int64_t side = map_side(maps);
    EXPECT_GE(side, kSmallestMap);
    EXPECT_LE(side, kLargestMap);
    if (side > kSmallestMap) {
      EXPECT_LE(maps * side * side * 4 / 3, 13 << 20) << maps;
    }
  }
  EXPECT_GE(map_side(9000), 24);  // 3,000 pairs that differ
}

}  // namespace
}  // namespace lockstep
