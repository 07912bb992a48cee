// Weights in few bits whose groups have any size, run through the rows, or were read as if they had another.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "compare/comparison.h"
#include "diagnose/weight/weight_levels.h"
#include "diagnose/weight/weight_relation.h"
#include "packed_layer.h"

namespace lockstep {
namespace {

using namespace synthetic;

// w with each group brought to its largest, `level` of that, and back; `read`: whose largest the number gets.
template <typename Level, typename Group>
Values in_levels(const Values& w, Group&& group, Level&& level, Group&& read) {
  Values out = w;
  std::vector<double> largest;
  const auto each = [&](auto&& act) {
    for (int64_t j = 0; j < w.rows(); ++j)
      for (int64_t i = 0; i < w.last(); ++i) act(j, i, static_cast<size_t>(j * w.last() + i));
  };
  each([&](int64_t j, int64_t i, size_t at) {
    const size_t g = static_cast<size_t>(group(j, i));
    if (g >= largest.size()) largest.resize(g + 1);
    largest[g] = std::max(largest[g], std::fabs(static_cast<double>(w.v[at])));
  });
  each([&](int64_t j, int64_t i, size_t at) {
    const double own = largest[static_cast<size_t>(group(j, i))];
    out.v[at] = static_cast<float>(level(w.v[at] / own) * largest[static_cast<size_t>(read(j, i)) % largest.size()]);
  });
  return out;
}

double whole(double x, int bits) {
  const double most = (1 << (bits - 1)) - 1;
  return std::nearbyint(x * most) / most;
}

using GroupOf = std::function<int64_t(int64_t, int64_t)>;
GroupOf by_row(int64_t width, int64_t size, int64_t read) {
  return [=](int64_t j, int64_t i) { return j * ((width + size - 1) / size) + i / read; };
}
GroupOf through_rows(int64_t width, int64_t size) {
  return [=](int64_t j, int64_t i) { return (j * width + i) / size; };
}

std::string cause_in(const PackedLayer& layer, const GroupOf& group, int bits, const GroupOf& read) {
  return layer.cause(in_levels(
      layer.w, group, [&](double x) { return whole(x, bits); }, read));
}

TEST(GroupSizes, AnySizeThatDividesARow) {
  const PackedLayer layer(24, 208, 24);
  for (const int64_t size : {8, 13, 26, 52, 104})
    for (const int bits : {4, 8})
      EXPECT_EQ(cause_in(layer, by_row(208, size, size), bits, by_row(208, size, size)), "linear.weight_quantised")
          << size << " " << bits;
}

TEST(GroupSizes, GroupsThatDivideNoRow) {
  const PackedLayer layer(24, 112, 24);
  for (const int64_t size : {32, 64, 256}) {
    EXPECT_EQ(cause_in(layer, through_rows(112, size), 4, through_rows(112, size)), "linear.weight_quantised") << size;
    if (size < 112) {  // each row's last group is shorter
      EXPECT_EQ(cause_in(layer, by_row(112, size, size), 8, by_row(112, size, size)), "linear.weight_quantised")
          << size;
    }
  }
}

TEST(GroupSizes, ScalesReadForGroupsOfAnotherSize) {
  const PackedLayer layer(24, 160, 24);
  for (const int64_t read : {20, 24, 40, 64})
    EXPECT_EQ(cause_in(layer, by_row(160, 16, 16), 8, by_row(160, 16, read)), "linear.weight_quantised") << read;
  EXPECT_EQ(cause_in(layer, by_row(160, 32, 32), 4, through_rows(160, 20)), "linear.weight_quantised");
  EXPECT_EQ(cause_in(layer, by_row(160, 20, 20), 4, through_rows(160, 16)), "linear.weight_quantised");
}

// A table that nobody has written down: found where there are rows enough to solve for the weight.
TEST(GroupSizes, ATableOfItsOwn) {
  const PackedLayer layer(140, 96, 32);
  const auto table = [](double x) {
    return std::copysign(std::pow(std::nearbyint(7 * std::sqrt(std::fabs(x))) / 7, 2), x);
  };
  EXPECT_EQ(layer.cause(in_levels(layer.w, through_rows(96, 64), table, through_rows(96, 64))),
            "linear.weight_quantised");
  Values off = layer.w;  // another revision takes as many values as it has numbers
  for (size_t i = 0; i < off.v.size(); ++i) off.v[i] += 0.05f * noise({1}, static_cast<unsigned>(i + 50)).v[0];
  EXPECT_EQ(layer.cause(off), "linear.different_weight");
}

TEST(GroupSizes, FilesSayTheSame) {
  const Values w = noise({24, 112}, 4);
  const auto id = [&](const Values& read) { return relate_weights("net.m.weight", read, w).id.id(); };
  const auto in_four = [](double x) { return whole(x, 4); };
  EXPECT_EQ(id(in_levels(w, through_rows(112, 64), in_four, through_rows(112, 64))), "weights.quantised");
  EXPECT_EQ(id(in_levels(w, by_row(112, 28, 28), in_four, by_row(112, 28, 28))), "weights.quantised");
  Values off = w;
  for (size_t i = 0; i < off.v.size(); ++i) off.v[i] += 0.05f * noise({1}, static_cast<unsigned>(i + 50)).v[0];
  EXPECT_NE(id(off), "weights.quantised");
  EXPECT_FALSE(find_few_levels(w, 5e-4));
}

// Both runs in bf16: the weight, the steps and what is left are rounded as well.
TEST(GroupSizes, InARunOfPoorPrecision) {
  PackedLayer layer(60, 208, 48);
  for (float& value : layer.x.v) value += 2;  // most of what is off is then the same in every row
  layer.x = mapped(layer.x, bf16);
  const Values held = mapped(layer.w, bf16);
  auto weights = std::make_shared<MemoryWeights>();
  weights->add("net.m.weight", layer.w), weights->add("net.m.bias", {{48}, layer.bias});
  const auto cause = [&](const Values& w) {
    RunMaker a, b;
    a.in("net.m", layer.x).add("net.m", mapped(layer.product(held), bf16));
    b.in("net.m", layer.x).add("net.m", mapped(layer.product(w), bf16));
    for (RunMaker* run : {&a, &b})
      for (RecordedTensor& record : run->run.records) {
        const Tensor rounded = record.load().to(DType::kBF16);
        record.dtype = DType::kBF16, record.load = [rounded] { return rounded; };
      }
    return first_cause(a, b, weights);
  };
  Values coarse = held;
  for (size_t begin = 0; begin < coarse.v.size(); begin += 26) {
    float largest = 0;
    for (size_t i = begin; i < begin + 26; ++i) largest = std::max(largest, std::fabs(held.v[i]));
    const double step = bf16(largest / 7.0);
    for (size_t i = begin; i < begin + 26; ++i)
      coarse.v[i] = static_cast<float>(bf16(step * std::nearbyint(bf16(held.v[i] / step))));
  }
  EXPECT_EQ(cause(coarse), "linear.weight_quantised");
  EXPECT_EQ(cause(held), "");
}

}  // namespace
}  // namespace lockstep
