// Convolutions with kernels that no checkpoint holds: drawn at random, of another revision, in levels of their own.
#include <gtest/gtest.h>

#include <cmath>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

// y = conv(x, w) + b with a border of zeros, size kept; w is [out, in, k, k] or [out, in, taps, k, k], of which the
// last tap of time counts.
Values convolved_with(const Values& x, const Values& w, const Values& b) {
  const int64_t out = w.shape[0], in = w.shape[1], taps = w.rank() == 5 ? w.shape[2] : 1, k = w.dim(-1);
  const int64_t height = x.dim(-2), width = x.dim(-1);
  Shape shape = x.shape;
  shape[1] = out;
  Values y = make_values(shape);
  for (int64_t o = 0; o < out; ++o)
    for (int64_t r = 0; r < height; ++r)
      for (int64_t c = 0; c < width; ++c) {
        double sum = b.v[static_cast<size_t>(o)];
        for (int64_t i = 0; i < in; ++i)
          for (int64_t a = 0; a < k; ++a)
            for (int64_t e = 0; e < k; ++e) {
              const int64_t sr = r + a - k / 2, sc = c + e - k / 2;
              if (sr < 0 || sc < 0 || sr >= height || sc >= width) continue;
              sum += static_cast<double>(w.v[static_cast<size_t>((((o * in + i) * taps + taps - 1) * k + a) * k + e)]) *
                     x.v[static_cast<size_t>((i * height + sr) * width + sc)];
            }
        y.v[static_cast<size_t>((o * height + r) * width + c)] = static_cast<float>(sum);
      }
  return y;
}

struct Convolution {
  Values x, w, b;
  Convolution(Shape input, Shape kernel) : x(noise(input, 1)), w(noise(kernel, 2, 0.3f)), b(noise({kernel[0]}, 3)) {}

  Comparison with(const Values& wrong) const {
    auto weights = std::make_shared<MemoryWeights>();
    weights->add("vae.conv.weight", w), weights->add("vae.conv.bias", b);
    RunMaker right, mine;
    right.in("vae.conv", x).add("vae.conv", convolved_with(x, w, b));
    mine.in("vae.conv", x).add("vae.conv", wrong);
    return compared(right, mine, weights);
  }
  Comparison drawn(unsigned seed) const {  // uniform within 1/sqrt(inputs), its bias too
    const double bound = 1 / std::sqrt(static_cast<double>(w.size() / w.shape[0]));
    const auto uniform = [&](const Values& like, unsigned from) {
      return mapped(noise(like.shape, from), [&](double v) { return bound * std::erf(v / std::sqrt(2.0)); });
    };
    return with(convolved_with(x, uniform(w, seed), uniform(b, seed + 1)));
  }
};

TEST(SolvedKernels, AKernelThatWasNeverLoaded) {
  const auto found = [](const Convolution& layer) {
    const Comparison result = layer.drawn(20);
    return result.causes.empty() ? "" : std::string(result.causes[0].cause.id()) + ": " + result.causes[0].explanation;
  };
  for (const std::string& said :
       {found({{1, 20, 12, 10}, {16, 20, 1, 1}}), found({{1, 20, 1, 12, 10}, {16, 20, 1, 1, 1}}),
        found({{1, 6, 12, 10}, {16, 6, 3, 3}}), found({{1, 6, 1, 12, 10}, {8, 6, 3, 3, 3}})})
    EXPECT_TRUE(said.starts_with("convolution.different_weight") && said.find("initial") != std::string::npos) << said;
}

// Fewer places than the kernel has numbers: what it meets must be known by its angles.
TEST(SolvedKernels, TooFewPlacesToSolveFor) {
  Convolution layer({1, 40, 7, 8}, {96, 40, 3, 3});
  for (size_t i = 0; i < layer.x.v.size(); ++i)  // a picture: places are alike
    layer.x.v[i] = 0.4f * layer.x.v[i] + layer.x.v[i / 56 * 56] * (i % 56 < 30 ? 1.0f : -0.5f);
  EXPECT_EQ(first_cause(layer.drawn(20)), "convolution.different_weight");
  Values unrelated = noise({1, 96, 7, 8}, 9);
  EXPECT_EQ(first_cause(layer.with(unrelated)), "");
}

TEST(SolvedKernels, AnotherRevisionAndLevelsOfItsOwn) {
  const Convolution layer({1, 8, 14, 12}, {12, 8, 3, 3});
  Values near = layer.w, coarse = layer.w;
  const Values e = noise(layer.w.shape, 7, 0.02f);
  for (size_t i = 0; i < near.v.size(); ++i) near.v[i] += e.v[i];
  EXPECT_EQ(first_cause(layer.with(convolved_with(layer.x, near, layer.b))), "convolution.different_weight");
  for (size_t row = 0; row < 12; ++row) {  // squares of whole numbers, one largest a row
    float most = 0;
    for (size_t i = row * 72; i < (row + 1) * 72; ++i) most = std::max(most, std::fabs(layer.w.v[i]));
    for (size_t i = row * 72; i < (row + 1) * 72; ++i) {
      const float q = std::nearbyint(7 * std::sqrt(std::fabs(layer.w.v[i]) / most)) / 7;
      coarse.v[i] = std::copysign(q * q * most, layer.w.v[i]);
    }
  }
  EXPECT_EQ(first_cause(layer.with(convolved_with(layer.x, coarse, layer.b))), "convolution.weight_rounded");
}

TEST(SolvedKernels, ChannelsThatAreScaledHaveTheirOwnKernel) {
  const Convolution layer({1, 8, 14, 12}, {12, 8, 3, 3});
  Values scaled = convolved_with(layer.x, layer.w, layer.b);
  for (size_t i = 0; i < scaled.v.size(); ++i) scaled.v[i] *= 0.6f + 0.1f * static_cast<float>(i / (14 * 12));
  EXPECT_EQ(first_cause(layer.with(scaled)), "affine.channel_scale");
}

TEST(SolvedKernels, WhatIsNoConvolutionIsNotSolvedFor) {
  const Convolution layer({1, 8, 14, 12}, {12, 8, 3, 3});
  EXPECT_EQ(first_cause(layer.with(noise({1, 12, 14, 12}, 30))), "");
  const Values squares = mapped(layer.x, [](double v) { return v * v + 0.3 * v; });
  EXPECT_EQ(first_cause(layer.with(convolved_with(squares, noise(layer.w.shape, 31), layer.b))), "");
}

}  // namespace
}  // namespace lockstep
