// The parent's own code between modules, and what happens inside a layer: norms nobody recorded, gates held or set in
// part, layers applied twice or in a poorer format, products of the wrong pair.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

constexpr size_t kGlueWidth = 48;
using RowRule = std::function<void(std::span<float>)>;

Values by_rows(const Values& x, const RowRule& rule) {
  Values out = x;
  for (int64_t i = 0; i < x.rows(); ++i) rule(out.row(i));
  return out;
}

void divide_by_rms(std::span<float> row) {
  double squares = 0;
  for (const float x : row) squares += static_cast<double>(x) * x;
  const double factor = 1 / std::sqrt(squares / static_cast<double>(row.size()) + 1e-6);
  for (float& x : row) x = static_cast<float>(x * factor);
}

// One tensor between two modules, made by code that nobody recorded.
std::string cause_between(const Values& right, const Values& wrong) {
  const Values other = noise({1, 5, 7}, 90);
  RunMaker a, b;
  a.add("net.before", other).in("net.after", right).add("net.after", right);
  b.add("net.before", other).in("net.after", wrong).add("net.after", wrong);
  return first_cause(a, b);
}

TEST(NormBetween, AddedOrLeftOutWhereNoModuleIs) {
  Values x = noise({1, 24, static_cast<int64_t>(kGlueWidth)}, 1, 3);
  for (float& value : x.v) value += 0.7f;
  const Values normal = by_rows(x, divide_by_rms), weight = noise({static_cast<int64_t>(kGlueWidth)}, 2);
  Values weighted = normal;
  for (size_t i = 0; i < weighted.v.size(); ++i) weighted.v[i] *= weight.v[i % kGlueWidth];
  EXPECT_EQ(cause_between(x, normal), "norm.added");
  EXPECT_EQ(cause_between(x, weighted), "norm.added");
  EXPECT_EQ(cause_between(weighted, x), "norm.missing");
  const auto centre = [](std::span<float> row) {
    double sum = 0;
    for (const float value : row) sum += value;
    for (float& value : row) value -= static_cast<float>(sum / static_cast<double>(row.size()));
  };
  EXPECT_EQ(cause_between(x, by_rows(x, centre)), "norm.added");
  // A norm takes any factor of a row away: that the reference is normalised does not tell what yours lacks.
  int row = 0;
  const Values by_factor = by_rows(normal, [&](std::span<float> values) {
    for (float& value : values) value *= 1 + 0.1f * static_cast<float>(row % 7);
    ++row;
  });
  EXPECT_EQ(cause_between(normal, by_factor), "affine.row_scale");
}

// A picture [1, channels, height, width] normalised along its width, as where channels were last.
TEST(NormBetween, AlongAnotherAxisOfAPicture) {
  const Values x = noise({1, 12, 10, 16}, 1);
  const auto along = [&](size_t count, size_t stride, size_t starts, double root) {
    Values out = x;
    for (size_t s = 0; s < starts; ++s) {
      const size_t start = stride == 1 ? s * count : s;
      double squares = 0;
      for (size_t i = 0; i < count; ++i) squares += std::pow(x.v[start + i * stride], 2);
      for (size_t i = 0; i < count; ++i)
        out.v[start + i * stride] = static_cast<float>(x.v[start + i * stride] / std::sqrt(squares) * root);
    }
    return out;
  };
  const Values right = along(12, 160, 160, std::sqrt(12.0)), wrong = along(16, 1, 120, std::sqrt(12.0));
  RunMaker a, b;
  a.in("vae.decoder.norm", x).add("vae.decoder.norm", right),
      b.in("vae.decoder.norm", x).add("vae.decoder.norm", wrong);
  EXPECT_EQ(first_cause(a, b), "norm.axis");
}

// y = x + gate * f.
struct GatedSum {
  Values x = noise({1, 20, static_cast<int64_t>(kGlueWidth)}, 1),
         f = noise({1, 20, static_cast<int64_t>(kGlueWidth)}, 2),
         gate = noise({1, static_cast<int64_t>(kGlueWidth)}, 3),
         other = noise({1, static_cast<int64_t>(kGlueWidth)}, 4);
  Values made(const std::function<double(size_t)>& g) const {
    Values out = x;
    for (size_t i = 0; i < out.v.size(); ++i) out.v[i] += static_cast<float>(g(i % kGlueWidth) * f.v[i]);
    return out;
  }
  std::string cause(const std::function<double(size_t)>& g) const {
    const Values right = made([&](size_t j) { return gate.v[j]; }), wrong = made(g);
    RunMaker a, b;
    for (RunMaker* maker : {&a, &b})
      maker->in("net.block", x).add("net.block.gate", gate).add("net.block.other", other);
    a.add("net.block.attn", f).in("net.block.norm", right).add("net.block.norm", right);
    b.add("net.block.attn", f).in("net.block.norm", wrong).add("net.block.norm", wrong);
    return first_cause(a, b);
  }
};

TEST(Gates, HeldSetInPartOrMixed) {
  const GatedSum sum;
  EXPECT_EQ(sum.cause([&](size_t j) { return std::clamp(static_cast<double>(sum.gate.v[j]), -0.6, 0.6); }),
            "gate.form");
  EXPECT_EQ(sum.cause([&](size_t j) { return j < 20 ? sum.gate.v[j] : 1.0; }), "gate.form");
  EXPECT_EQ(sum.cause([&](size_t j) { return 0.5 * (sum.gate.v[j] + sum.other.v[j]); }), "gate.form");
  EXPECT_EQ(sum.cause([&](size_t j) { return sum.other.v[j]; }), "gate.other_part");
}

struct SquareLayer {
  Values x = noise({1, 20, static_cast<int64_t>(kGlueWidth)}, 1),
         w = noise({static_cast<int64_t>(kGlueWidth), static_cast<int64_t>(kGlueWidth)}, 2, 0.2f);
  std::vector<float> bias = noise({static_cast<int64_t>(kGlueWidth)}, 3).v;
  using Round = double (*)(double);
  static double exact(double value) { return value; }
  Values made(const Values& in, Round input, Round weight, Round offset) const {
    Values out = in;
    for (int64_t i = 0; i < in.rows(); ++i)
      for (size_t j = 0; j < kGlueWidth; ++j) {
        double sum = offset(bias[j]);
        for (size_t k = 0; k < kGlueWidth; ++k) sum += input(in.row(i)[k]) * weight(w.row(static_cast<int64_t>(j))[k]);
        out.row(i)[j] = static_cast<float>(sum);
      }
    return out;
  }
  std::string cause(const Values& wrong) const {
    auto weights = std::make_shared<MemoryWeights>();
    weights->add("net.proj.weight", w), weights->add("net.proj.bias", {{static_cast<int64_t>(kGlueWidth)}, bias});
    RunMaker a, b;
    a.in("net.proj", x).add("net.proj", made(x, exact, exact, exact)), b.in("net.proj", x).add("net.proj", wrong);
    return first_cause(a, b, weights);
  }
};

TEST(LinearLayer, TwiceOrInAPoorerFormat) {
  const SquareLayer layer;
  const auto exact = SquareLayer::exact;
  EXPECT_EQ(layer.cause(layer.made(layer.made(layer.x, exact, exact, exact), exact, exact, exact)), "linear.twice");
  EXPECT_EQ(layer.cause(layer.made(layer.x, exact, bf16, bf16)), "linear.weight_rounded");
  EXPECT_EQ(layer.cause(layer.made(layer.x, f16, f16, exact)), "precision.f16");
}

// up * act(gate), where act was recorded as a module.
TEST(Products, WhichOperandIsAnother) {
  const Values gate = noise({1, 20, 32}, 1), up = noise({1, 20, 32}, 2), act = mapped(gate, silu);
  const auto times = [](const Values& x, const Values& y) {
    Values out = x;
    for (size_t i = 0; i < out.v.size(); ++i) out.v[i] *= y.v[i];
    return out;
  };
  const auto cause = [&](const Values& wrong) {
    RunMaker a, b;
    for (RunMaker* maker : {&a, &b}) maker->add("mlp.gate", gate).add("mlp.act", act).add("mlp.up", up);
    a.in("mlp.down", times(act, up)).add("mlp.down", up), b.in("mlp.down", wrong).add("mlp.down", gate);
    return first_cause(a, b);
  };
  EXPECT_EQ(cause(times(act, gate)), "activation.other_input");
  EXPECT_EQ(cause(times(gate, up)), "activation.missing");
}

// The activation is left out in some channels: the tensor before it is there too, but the step is the answer.
TEST(Parts, TheStepThatIsLeftOutComesFirst) {
  const Values x = noise({1, 40, 32}, 1), right = mapped(x, silu);
  Values wrong = right;
  for (int64_t i = 0; i < 40; ++i)
    for (size_t j = 16; j < 32; ++j) wrong.row(i)[j] = x.row(i)[j];
  RunMaker a, b;
  a.in("net.act", x).add("net.act", right), b.in("net.act", x).add("net.act", wrong);
  EXPECT_EQ(first_cause(a, b), "activation.missing");
}

// The other of the two is made before the activation in yours, after it in the reference.
TEST(CodeBetweenModules, GateAndUpExchangedAtTheInputOfTheActivation) {
  const Values x = noise({1, 40, 16}, 1), gate = noise({1, 40, 24}, 2), up = noise({1, 40, 24}, 3);
  const auto run = [&](bool exchanged, bool multiplied) {
    const Values &first = exchanged ? up : gate, &second = exchanged ? gate : up, act = mapped(first, silu);
    Values product = multiplied ? act : mapped(x, [](double v) { return v; });
    for (size_t i = 0; multiplied && i < product.v.size(); ++i) product.v[i] *= second.v[i];
    RunMaker maker;
    maker.in("net.mlp", x);
    maker.in(exchanged ? "net.mlp.up" : "net.mlp.gate", x).add(exchanged ? "net.mlp.up" : "net.mlp.gate", first);
    maker.in("net.mlp.act", first).add("net.mlp.act", act);
    maker.in(exchanged ? "net.mlp.gate" : "net.mlp.up", x).add(exchanged ? "net.mlp.gate" : "net.mlp.up", second);
    return maker.in("net.mlp.down", product);
  };
  EXPECT_EQ(first_cause(run(false, true), run(true, true)), "activation.gate_up_exchanged");
  EXPECT_EQ(first_cause(run(false, false), run(true, false)), "activation.other_input");
}

}  // namespace
}  // namespace lockstep
