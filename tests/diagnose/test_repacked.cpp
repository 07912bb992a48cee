// Memory that was packed one way and read another: weights in blocks, steps of quantised groups, scales used twice,
// rows with a pitch, pixels without a clamp. Each in forms that the planted faults of the benchmark do not have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compare/comparison.h"
#include "diagnose/layout/layouts.h"
#include "diagnose/weight/weight_relation.h"
#include "packed_layer.h"

namespace lockstep {
namespace {

using namespace synthetic;

// --- steps of quantised groups
// w in `bits` bits and groups of 32, affine or not; `step` makes the step that is used of the right one and its number.
template <typename Step>
Values with_steps(const Values& w, int bits, bool affine, Step step) {
  Values out = w;
  std::vector<double> right, low;
  for (size_t begin = 0; begin < w.v.size(); begin += 32) {
    const auto [least, most] = std::minmax_element(w.v.begin() + static_cast<std::ptrdiff_t>(begin),
                                                   w.v.begin() + static_cast<std::ptrdiff_t>(begin + 32));
    right.push_back(affine ? (static_cast<double>(*most) - *least) / ((1 << bits) - 1)
                           : std::max(std::fabs(*least), std::fabs(*most)) / ((1 << (bits - 1)) - 1));
    low.push_back(affine ? *least : 0);
  }
  for (size_t i = 0; i < w.v.size(); ++i) {
    const size_t g = i / 32;
    out.v[i] = static_cast<float>(std::nearbyint((w.v[i] - low[g]) / right[g]) * step(right, g) + low[g]);
  }
  return out;
}

// The step as a number of six bits of the largest of its block of eight groups.
int in_six_bits(const std::vector<double>& steps, size_t g) {
  const auto block = steps.begin() + static_cast<std::ptrdiff_t>(g / 8 * 8);
  return static_cast<int>(std::nearbyint(steps[g] / *std::max_element(block, block + 8) * 63));
}

double of_six_bits(const std::vector<double>& steps, size_t g, int number) {
  const auto block = steps.begin() + static_cast<std::ptrdiff_t>(g / 8 * 8);
  return number * *std::max_element(block, block + 8) / 63;
}

TEST(Repacked, StepsOfAQuantisedWeightUnpackedWrongly) {
  const PackedLayer layer(150, 256, 24);
  using Steps = std::vector<double>;
  const auto high_bits_lost = [](const Steps& s, size_t g) {
    return of_six_bits(s, g, g % 8 < 5 ? in_six_bits(s, g) : in_six_bits(s, g) & 15);
  };
  const auto low_bits_lost = [](const Steps& s, size_t g) { return of_six_bits(s, g, in_six_bits(s, g) & 0x38); };
  const auto first_of_four = [](const Steps& s, size_t g) { return s[g / 4 * 4]; };
  EXPECT_EQ(layer.cause(with_steps(layer.w, 4, false, high_bits_lost)), "linear.weight_quantised");
  EXPECT_EQ(layer.cause(with_steps(layer.w, 4, true, high_bits_lost)), "linear.weight_quantised");
  EXPECT_EQ(layer.cause(with_steps(layer.w, 3, false, low_bits_lost)), "linear.weight_quantised");
  EXPECT_EQ(layer.cause(with_steps(layer.w, 6, true, first_of_four)), "linear.weight_quantised");
  const Comparison words = layer.with(with_steps(layer.w, 4, false, high_bits_lost));
  EXPECT_NE(words.causes.at(0).explanation.find("number 5, 6, 7 of every 8"), std::string::npos)
      << words.causes[0].explanation;
}

TEST(Repacked, NumbersThatAreNotTheWeightsAreNoQuestionOfSteps) {
  const PackedLayer layer(150, 256, 24);
  Values other = noise(layer.w.shape, 9);
  for (size_t i = 0; i < other.v.size(); ++i) other.v[i] = 0.5f * other.v[i] + 0.7f * layer.w.v[i];
  EXPECT_EQ(layer.cause(with_steps(other, 4, false, [](const auto& s, size_t g) { return s[g]; })), "");
}

// --- blocks of rows and columns
// A few rows, each many times over, as the embedding of a time is: any steps meet them, so they are no evidence of any.
TEST(Repacked, RowsThatComeAgainDoNotShowSteps) {
  PackedLayer layer(96, 128, 40);
  const Values few = noise({4, 128}, 11);
  for (int64_t t = 0; t < layer.x.rows(); ++t) std::copy_n(few.row(t % 4).begin(), 128, layer.x.row(t).begin());
  EXPECT_NE(layer.cause(noise({40, 128}, 12)), "linear.weight_quantised");
}

TEST(Repacked, AWeightInBlocksOfAnySize) {
  const PackedLayer layer(20, 64, 48);
  const Values& w = layer.w;
  const auto in_order = [&](const Shape& seen, const std::vector<int>& order) {
    return reshaped(permuted(reshaped(w, seen), order), {48, 64});
  };
  for (const int64_t b : {2, 3, 4, 8, 16})
    EXPECT_EQ(layer.cause(in_order({48 / b, b, 64}, {0, 2, 1})), "linear.different_weight") << b;
  for (const int64_t c : {2, 4, 16})  // panels of columns
    EXPECT_EQ(layer.cause(in_order({48, 64 / c, c}, {1, 0, 2})), "linear.different_weight") << c;
  EXPECT_EQ(layer.cause(in_order({12, 64, 4}, {0, 2, 1})), "linear.different_weight");  // read as if it were repacked
  EXPECT_EQ(layer.cause(in_order({6, 8, 16, 4}, {2, 0, 1, 3})), "linear.different_weight");
  EXPECT_EQ(layer.cause(in_order({6, 8, 16, 4}, {0, 2, 3, 1})), "linear.different_weight");
  EXPECT_EQ(layer.cause(in_order({48, 8, 4, 2}, {0, 1, 3, 2})), "linear.input_parts_exchanged");
}

TEST(Repacked, AFileWithAWeightInBlocks) {
  const Values w = noise({48, 64}, 2), read = reshaped(permuted(reshaped(w, {16, 64, 3}), {0, 2, 1}), {48, 64});
  EXPECT_EQ(relate_weights("net.m.weight", read, w).id.id(), "weights.rearranged");
  EXPECT_EQ(relate_weights("net.m.weight", w, read).id.id(), "weights.rearranged");
  EXPECT_EQ(relate_weights("net.m.weight", noise({48, 64}, 5), w).id.id(), "weights.random");
}

TEST(Repacked, AWeightsNumbersInAnOrderThatNoRuleExplains) {
  const PackedLayer layer(120, 64, 48);
  std::vector<size_t> order(64);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  Values columns = layer.w, each = layer.w;
  for (int64_t j = 0; j < 48; ++j)
    for (size_t k = 0; k < 64; ++k) {
      columns.row(j)[k] = layer.w.row(j)[order[k]];
      each.row(j)[k] = layer.w.row(j)[order[(k + 5 * static_cast<size_t>(j)) % 64]];
    }
  EXPECT_EQ(layer.cause(columns), "linear.input_parts_exchanged");
  EXPECT_EQ(layer.cause(each), "linear.different_weight");
  EXPECT_EQ(layer.cause(noise({48, 64}, 6)), "linear.random_weight");
}

// --- scales
TEST(Repacked, ASmallWeightIsNotZero) {
  const PackedLayer layer(20, 64, 48);
  const auto scaled = [&](double by) {  // float8 after its largest was brought to 448, and the scale again
    return mapped(layer.w, [&](double v) { return by * float_from(float8_e4m3_from(static_cast<float>(100 * v))); });
  };
  EXPECT_EQ(layer.cause(scaled(1e-4 / 100)), "linear.weight_scaled");
  EXPECT_EQ(layer.cause(scaled(1e-5 / 100)), "linear.weight_scaled");
  EXPECT_EQ(layer.cause(mapped(layer.w, [](double v) { return 1e-4 * v; })), "linear.weight_scaled");
  EXPECT_EQ(layer.cause(mapped(layer.w, [](double) { return 0; })), "linear.zero_weight");
  EXPECT_EQ(layer.cause(mapped(noise({48, 64}, 7), [](double v) { return 1e-9 * v; })), "linear.zero_weight");
}

// A convolution of single pixels: [out, in, 1, 1] over [1, in, 6, 9].
TEST(Repacked, AConvolutionOfZerosAndOneOfSmallNumbers) {
  const Values x = noise({1, 12, 6, 9}, 1), w = noise({8, 12, 1, 1}, 2), b = noise({8}, 3);
  const auto convolved = [&](double by) {
    Values y = make_values({1, 8, 6, 9});
    for (size_t o = 0; o < 8; ++o)
      for (size_t p = 0; p < 54; ++p) {
        double sum = b.v[o];
        for (size_t i = 0; i < 12; ++i) sum += by * w.v[o * 12 + i] * x.v[i * 54 + p];
        y.v[o * 54 + p] = static_cast<float>(sum);
      }
    return y;
  };
  auto weights = std::make_shared<MemoryWeights>();
  weights->add("vae.conv.weight", w), weights->add("vae.conv.bias", b);
  const auto cause = [&](double by) {
    RunMaker right, wrong;
    right.in("vae.conv", x).add("vae.conv", convolved(1)), wrong.in("vae.conv", x).add("vae.conv", convolved(by));
    return first_cause(right, wrong, weights);
  };
  EXPECT_EQ(cause(0), "convolution.zero_weight");
  EXPECT_EQ(cause(1e-9), "convolution.zero_weight");  // less than the rounding of the bias
  EXPECT_EQ(cause(1e-4), "convolution.weight_scaled");
}

// --- rows with a pitch
// Rows of the last axis begin every `pitch` elements and are read as if they followed each other.
Values read_without_pitch(const Values& x, int64_t row, int64_t pitch, float padding) {
  Values out = x;
  for (int64_t i = 0; i < x.size(); ++i)
    out.v[static_cast<size_t>(i)] =
        i % pitch < row ? x.v[static_cast<size_t>(i / pitch * row + i % pitch)] : padding * static_cast<float>(i % 7);
  return out;
}

TEST(Repacked, RowsWithAPitch) {
  const Values x = noise({2, 11, 30}, 1);
  const auto cause = [&](const Values& wrong) {
    RunMaker a, b;
    a.add("net.m", x), b.add("net.m", wrong);
    return first_cause(a, b);
  };
  for (const int64_t pitch : {31, 32, 36, 48, 64, 128}) {
    EXPECT_EQ(cause(read_without_pitch(x, 30, pitch, 0)), "layout.strided") << pitch;
    if (pitch <= 64) {
      EXPECT_EQ(cause(read_without_pitch(x, 30, pitch, 0.3f)), "layout.strided") << pitch;  // anything lies in between
    }
  }
  Values items = x;  // each item of the batch has memory of its own
  for (int64_t item = 0; item < 2; ++item) {
    const Values one =
        read_without_pitch({{11, 30}, {x.v.begin() + item * 330, x.v.begin() + (item + 1) * 330}}, 30, 40, 0);
    std::copy(one.v.begin(), one.v.end(), items.v.begin() + item * 330);
  }
  EXPECT_EQ(cause(items), "layout.strided");
  for (const int64_t pitch : {28, 32, 40}) {  // no padding is there, and it is skipped
    Values skipped = make_values(x.shape);
    for (int64_t i = 0; i < x.size(); ++i)
      if (const int64_t from = i / 30 * pitch + i % 30; from < x.size())
        skipped.v[static_cast<size_t>(i)] = x.v[static_cast<size_t>(from)];
    EXPECT_EQ(cause(skipped), "layout.strided") << pitch;
  }
  EXPECT_FALSE(find_padded_rows(noise({2, 11, 30}, 2), x, 2e-5));
  EXPECT_FALSE(find_padded_rows(x, x, 2e-5));
}

// --- pixels
TEST(Repacked, PixelsWithoutAClamp) {
  Values decoded = noise({1, 3, 8, 10}, 1, 0.45f);  // a few values beyond 1
  const auto picture = [&](auto&& pixel) {
    Values out = make_values({1, 8, 10, 3});
    for (size_t c = 0; c < 3; ++c)
      for (size_t p = 0; p < 80; ++p)
        out.v[p * 3 + c] = static_cast<float>(pixel(127.5 * decoded.v[c * 80 + p] + 127.5));
    return out;
  };
  const auto wrapped = [](double whole) { return whole - 256 * std::floor(whole / 256); };
  const auto right = [](double v) { return std::nearbyint(std::clamp(v, 0.0, 255.0)); };
  const auto cause = [&](auto&& pixel) {
    RunMaker a, b;
    a.add("vae.decoder", decoded).add("image", picture(right), Role::kCheckpoint);
    b.add("vae.decoder", decoded).add("image", picture(pixel), Role::kCheckpoint);
    a.run.records.back().dtype = b.run.records.back().dtype = DType::kU8;
    return first_cause(a, b);
  };
  EXPECT_EQ(cause([&](double v) { return wrapped(std::nearbyint(v)); }), "precision.clamp_missing");
  EXPECT_EQ(cause([&](double v) { return wrapped(std::trunc(v)); }), "precision.clamp_missing");
  EXPECT_EQ(cause([&](double v) { return wrapped(std::nearbyint(std::max(v, 0.0))); }), "precision.clamp_missing");
  EXPECT_EQ(cause([&](double v) { return wrapped(std::nearbyint(std::min(v, 255.0))); }), "precision.clamp_missing");
  EXPECT_EQ(cause([&](double v) { return std::trunc(std::clamp(v, 0.0, 255.0)); }), "precision.integer");
}

}  // namespace
}  // namespace lockstep
