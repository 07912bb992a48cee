// Weights and results of which a part is missing, comes twice, belongs to a neighbour, or is of another call.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "compare/comparison.h"
#include "diagnose/weight/weight_nearness.h"
#include "packed_layer.h"

namespace lockstep {
namespace {

using namespace synthetic;

// w[j, k] times what `factor` says.
template <typename Factor>
Values times(const Values& w, Factor factor) {
  Values out = w;
  for (int64_t j = 0; j < w.rows(); ++j)
    for (int64_t k = 0; k < w.last(); ++k) out.row(j)[static_cast<size_t>(k)] *= static_cast<float>(factor(j, k));
  return out;
}

TEST(PartedWeights, InputsThatDoNotCount) {
  const PackedLayer layer(30, 96, 48);
  const auto words = [&](auto&& factor) {
    const Comparison found = layer.with(times(layer.w, factor));
    return found.causes.empty() ? "" : std::string(found.causes[0].cause.id()) + ": " + found.causes[0].explanation;
  };
  const auto says = [&](auto&& factor, const std::string& part) {
    const std::string found = words(factor);
    EXPECT_TRUE(found.starts_with("linear.different_weight") && found.find(part) != std::string::npos)
        << part << " in " << found;
  };
  says([](int64_t, int64_t k) { return k < 48; }, "last 48 of 96 inputs left out");
  says([](int64_t, int64_t k) { return k >= 48; }, "first 48 of 96 inputs left out");
  says([](int64_t, int64_t k) { return k < 90; }, "last 6 of 96 inputs left out");
  says([](int64_t, int64_t k) { return 2 * (k < 48); }, "counted 2 times");
  says([](int64_t, int64_t k) { return k / 24 != 2; }, "left out");
  says([](int64_t, int64_t k) { return k % 2; }, "48 of 96 inputs left out");
  says([](int64_t j, int64_t k) { return j / 24 == k / 48; }, "each of 2 parts of the outputs");
  says([](int64_t j, int64_t k) { return j / 12 != k / 24; }, "all but its own");
}

TEST(PartedWeights, APartOfTheInputWithTheWeightsOfAnother) {
  const PackedLayer layer(30, 96, 48);
  const auto crossed = [&](auto&& from) {  // y = sum_k x[k] sum over the k' that meet it
    Values w = make_values(layer.w.shape);
    for (int64_t j = 0; j < 48; ++j)
      for (int64_t k = 0; k < 96; ++k) w.row(j)[static_cast<size_t>(from(k))] += layer.w.row(j)[static_cast<size_t>(k)];
    return layer.cause(w);
  };
  EXPECT_EQ(crossed([](int64_t k) { return k % 48; }), "linear.different_weight");  // the first half twice
  EXPECT_EQ(crossed([](int64_t k) { return k % 32; }), "linear.different_weight");  // the first third three times
  EXPECT_EQ(crossed([](int64_t k) { return (k + 48) % 96; }), "linear.input_parts_exchanged");
}

TEST(PartedWeights, FactorsThatAreNotWholeAreNoMissingPart) {
  const PackedLayer layer(30, 96, 48);
  EXPECT_EQ(layer.cause(times(layer.w, [](int64_t, int64_t k) { return 1 + 0.01 * static_cast<double>(k % 7); })),
            "linear.weight_scaled");
  EXPECT_EQ(layer.cause(times(layer.w, [](int64_t, int64_t) { return 0.7; })), "linear.weight_scaled");
}

TEST(PartedWeights, OutputsInTheOrderOfAPackedWord) {
  const PackedLayer layer(30, 64, 48);
  const auto moved = [&](const std::array<int64_t, 8>& order) {
    Values w = layer.w;
    for (int64_t j = 0; j < 48; ++j)
      std::copy_n(layer.w.row(j / 8 * 8 + order[static_cast<size_t>(j % 8)]).begin(), 64, w.row(j).begin());
    return w;
  };
  const std::array<int64_t, 8> packed{0, 2, 4, 6, 1, 3, 5, 7}, back{0, 4, 1, 5, 2, 6, 3, 7};
  for (const auto& order : {packed, back}) {
    EXPECT_EQ(layer.cause(moved(order)), "linear.different_weight");  // the bias stays
    PackedLayer with_bias = layer;
    for (size_t j = 0; j < 48; ++j) with_bias.bias[j] = layer.bias[j / 8 * 8 + static_cast<size_t>(order[j % 8])];
    EXPECT_EQ(layer.cause_of(with_bias.product(moved(order))), "linear.different_weight");
  }
  PackedLayer reversed = layer;
  for (size_t j = 0; j < 48; ++j) reversed.bias[j] = layer.bias[j ^ 7];
  EXPECT_EQ(layer.cause_of(reversed.product(moved({7, 6, 5, 4, 3, 2, 1, 0}))), "layout.reversed");
}

TEST(PartedWeights, NeighboursAndTheSameProjectionComeFirst) {
  std::vector<std::string> names{"t.blocks.0.attn.to_q.weight", "t.blocks.9.attn.to_out.0.weight",
                                 "t.blocks.4.attn.to_out.0.weight", "t.blocks.3.mlp.net.2.weight",
                                 "t.blocks.3.attn.to_add_out.weight"};
  sort_by_nearness(names, "t.blocks.3.attn.to_out.0.weight");
  EXPECT_EQ(names[0], "t.blocks.3.attn.to_add_out.weight");
  EXPECT_EQ(names[1], "t.blocks.4.attn.to_out.0.weight");
  EXPECT_EQ(names[2], "t.blocks.9.attn.to_out.0.weight");
  EXPECT_EQ(names[4], "t.blocks.0.attn.to_q.weight");
}

// --- something of low rank
// w + factor * left right^T
Values with_rank(const Values& w, int64_t rank, double factor) {
  const Values left = noise({w.rows(), rank}, 11), right = noise({rank, w.last()}, 12);
  Values out = w;
  for (int64_t j = 0; j < w.rows(); ++j)
    for (int64_t r = 0; r < rank; ++r)
      for (int64_t k = 0; k < w.last(); ++k)
        out.row(j)[static_cast<size_t>(k)] +=
            static_cast<float>(factor * left.row(j)[static_cast<size_t>(r)] * right.row(r)[static_cast<size_t>(k)]);
  return out;
}

TEST(PartedWeights, AnAdapterOfAnyRankThatTheRowsAllow) {
  const PackedLayer layer(90, 120, 100);
  for (const int64_t rank : {1, 4, 16, 24})
    EXPECT_EQ(layer.cause(with_rank(layer.w, rank, 0.3)), "linear.different_weight") << rank;
  EXPECT_EQ(layer.cause(with_rank(layer.w, 80, 0.3)), "");  // of no low rank, and too few rows to solve for it
}

TEST(PartedWeights, ABranchOfTheStrongestDirections) {
  PackedLayer layer(90, 120, 100);
  layer.w = noise(layer.w.shape, 2, 0.1f);
  const Values a = noise({100}, 5), b = noise({120}, 6);
  Values plain = layer.w;  // without any part along them
  for (int64_t j = 0; j < 100; ++j) {
    const double share = dot(plain.row(j), b.v) / squared_norm(b.v);
    for (size_t k = 0; k < 120; ++k) plain.row(j)[k] -= static_cast<float>(share * b.v[k]);
  }
  for (size_t k = 0; k < 120; ++k) {
    double share = 0;
    for (size_t j = 0; j < 100; ++j) share += a.v[j] * plain.v[j * 120 + k] / squared_norm(a.v);
    for (size_t j = 0; j < 100; ++j) plain.v[j * 120 + k] -= static_cast<float>(share * a.v[j]);
  }
  layer.w = plain;
  for (size_t j = 0; j < 100; ++j)
    for (size_t k = 0; k < 120; ++k) layer.w.v[j * 120 + k] += a.v[j] * b.v[k];
  const Comparison found = layer.with(plain);
  ASSERT_FALSE(found.causes.empty());
  EXPECT_EQ(found.causes[0].cause.id(), "linear.different_weight");
  EXPECT_NE(found.causes[0].explanation.find("directions of W itself"), std::string::npos)
      << found.causes[0].explanation;
}

// Rows in a space of few directions: any other weight differs by something of that rank there.
TEST(PartedWeights, FewInputsMakeNoLowRank) {
  PackedLayer layer(60, 96, 80);
  const Values basis = noise({6, 96}, 7), shares = noise({60, 6}, 8);
  for (int64_t t = 0; t < 60; ++t)
    for (size_t k = 0; k < 96; ++k) {
      double sum = 0;
      for (size_t r = 0; r < 6; ++r) sum += shares.row(t)[r] * basis.v[r * 96 + k];
      layer.x.row(t)[k] = static_cast<float>(sum);
    }
  EXPECT_NE(layer.cause(noise({80, 96}, 9)), "linear.different_weight");
}

// --- a buffer in which another call shows through
TEST(PartedWeights, APartOfAnotherCall) {
  const Values first = noise({1, 20, 12}, 1), second = noise({1, 20, 12}, 2), after = noise({1, 20, 12}, 3);
  const auto cause = [&](const Values& wrong, bool goes_on) {
    RunMaker a, b;
    a.add("net.m", first, Role::kOutput, 0).add("net.n", after, Role::kOutput, 0);
    b.add("net.m", first, Role::kOutput, 0).add("net.n", after, Role::kOutput, 0);
    a.add("net.m", second, Role::kOutput, 1).add("net.n", after, Role::kOutput, 1);
    b.add("net.m", wrong, Role::kOutput, 1).add("net.n", goes_on ? wrong : after, Role::kOutput, 1);
    return first_cause(a, b);
  };
  const auto mixed = [&](auto&& is_old) {
    Values out = second;
    for (size_t i = 0; i < out.v.size(); ++i)
      if (is_old(i)) out.v[i] = first.v[i];
    return out;
  };
  for (const bool goes_on : {false, true}) {
    EXPECT_EQ(cause(mixed([](size_t i) { return i >= 120; }), goes_on), "capture.other_hit");
    EXPECT_EQ(cause(mixed([](size_t i) { return i < 77; }), goes_on), "capture.other_hit");  // ends within a token
    EXPECT_EQ(cause(mixed([](size_t i) { return i % 12 < 6; }), goes_on), "capture.other_hit");
  }
  Values noisy = second;
  for (size_t i = 120; i < noisy.v.size(); ++i) noisy.v[i] = after.v[i - 7];
  EXPECT_EQ(cause(noisy, false), "");
}

}  // namespace
}  // namespace lockstep
