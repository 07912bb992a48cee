// Transformation families on pairs made here: each cause in a form the planted faults of the benchmark do not have.
#include <gtest/gtest.h>

#include <cmath>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

class Weights : public WeightSource {
 public:
  explicit Weights(std::map<std::string, Values> values) : values_(std::move(values)) {
    for (const auto& [name, value] : values_) shapes_[name] = value.shape;
  }
  const std::map<std::string, Shape>& shapes() const override { return shapes_; }
  std::optional<Values> find(const std::string& name) const override {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::map<std::string, Values> values_;
  std::map<std::string, Shape> shapes_;
};

// One module with one input and one output.
std::string cause_of(const Values& x, const Values& reference, const Values& candidate,
                     std::shared_ptr<const WeightSource> weights = nullptr) {
  RunMaker a, b;
  a.in("net.m", x).add("net.m", reference);
  b.in("net.m", x).add("net.m", candidate);
  CompareOptions options;
  options.weights_reference = std::move(weights);
  return first_cause(compare_runs(a.run, b.run, options));
}

Values linear(const Values& x, const Values& w, const std::vector<float>& b) {
  Values out = make_values({1, x.rows(), w.shape[0]});
  for (int64_t i = 0; i < x.rows(); ++i)
    for (int64_t j = 0; j < w.shape[0]; ++j) {
      double sum = b[static_cast<size_t>(j)];
      for (size_t k = 0; k < x.row(i).size(); ++k) sum += static_cast<double>(x.row(i)[k]) * w.row(j)[k];
      out.row(i)[static_cast<size_t>(j)] = static_cast<float>(sum);
    }
  return out;
}

struct Layer {
  Values x = noise({1, 20, 64}, 1), w = noise({48, 64}, 2), other = noise({48, 64}, 3);
  std::vector<float> b = noise({48}, 4).v;
  std::shared_ptr<const WeightSource> weights = std::make_shared<Weights>(
      std::map<std::string, Values>{{"net.m.weight", w}, {"net.m.bias", {{48}, b}}, {"net.n.weight", other}});
  Values right() const { return linear(x, w, b); }
  std::string cause(const Values& w_changed) const { return cause_of(x, right(), linear(x, w_changed, b), weights); }
};

TEST(LinearFamily, WhatHappenedToTheWeight) {
  const Layer layer;
  EXPECT_EQ(layer.cause(mapped(layer.w, [](double v) { return 0.7 * v; })), "linear.weight_scaled");
  EXPECT_EQ(layer.cause(layer.other), "linear.other_weight");
  Values rows = layer.w, half = layer.w, reversed = layer.w, interleaved = layer.w, rolled = layer.w;
  for (int64_t j = 0; j < 48; ++j)
    for (int64_t k = 0; k < 64; ++k) {
      const size_t at = static_cast<size_t>(k);
      rows.row(j)[at] *= 1 + 0.02f * static_cast<float>(j);
      if (j >= 24) half.row(j)[at] = layer.other.row(j)[at];
      reversed.row(j)[at] = layer.w.row(j)[static_cast<size_t>(63 - k)];
      interleaved.row(j)[at] = layer.w.row(j)[static_cast<size_t>(k % 4 * 16 + k / 4)];
      rolled.row(j)[at] = layer.w.row((j + 5) % 48)[at];
    }
  EXPECT_EQ(layer.cause(rows), "linear.weight_row_scale");
  EXPECT_EQ(layer.cause(half), "linear.other_weight");
  EXPECT_EQ(layer.cause(reversed), "linear.input_parts_exchanged");
  EXPECT_EQ(layer.cause(interleaved), "linear.input_parts_exchanged");
  EXPECT_EQ(layer.cause(rolled), "layout.rolled");
  EXPECT_EQ(layer.cause(noise({48, 64}, 77)), "");  // too few rows to solve for a weight: no guess
}

TEST(LinearFamily, WhatHappenedToItsInput) {
  const Layer layer;
  const auto with_input = [&](const Values& x) {
    return cause_of(layer.x, layer.right(), linear(x, layer.w, layer.b), layer.weights);
  };
  EXPECT_EQ(with_input(mapped(layer.x, [](double v) { return v / (1 + std::exp(-v)); })), "activation.added");
  EXPECT_EQ(with_input(mapped(layer.x, [](double v) { return float_from(bfloat16_from(static_cast<float>(v))); })),
            "precision.bf16");
}

TEST(ElementwiseFamily, FunctionsOfTheReference) {
  const Values x = noise({1, 40, 64}, 1), other = noise({1, 40, 32}, 2);
  const auto cause = [&](double (*f)(double)) { return cause_of(other, x, mapped(x, f)); };
  EXPECT_EQ(cause([](double v) { return std::tanh(v); }), "activation.added");
  EXPECT_EQ(cause([](double v) { return std::fabs(v); }), "elementwise.added");
  EXPECT_EQ(cause([](double v) { return 0.3 * v * v * v + 0.1 * std::sin(3 * v); }), "elementwise.function");
  EXPECT_EQ(cause_of(other, mapped(x, [](double v) { return v / (1 + std::exp(-v)); }), x), "activation.missing");
}

TEST(PartsFamily, OnlyAPartIsWrong) {
  const Values x = noise({1, 32, 16}, 1), other = noise({1, 32, 8}, 2);
  Values zeros = x, negated = x;
  for (int64_t t = 0; t < 32; ++t)
    for (size_t j = 12; j < 16; ++j) zeros.row(t)[j] = 0;
  for (int64_t t = 20; t < 32; ++t)
    for (float& value : negated.row(t)) value = -value;
  EXPECT_EQ(cause_of(other, x, zeros), "garbage.zeros");
  EXPECT_EQ(cause_of(other, x, negated), "affine.scale");
}

TEST(PartsFamily, UnrelatedValuesInAPartAreNoFinding) {
  const Values x = noise({1, 32, 16}, 1), other = noise({1, 32, 8}, 2), wrong = noise({1, 32, 16}, 9, 3);
  Values y = x;
  for (int64_t t = 20; t < 32; ++t) std::copy(wrong.row(t).begin(), wrong.row(t).end(), y.row(t).begin());
  EXPECT_EQ(cause_of(other, x, y), "");
}

// y = x * (1 + scale) + shift with both recorded in one vector.
struct Modulated {
  Values x = noise({1, 24, 32}, 1), vectors = noise({1, 64}, 2, 0.5f);
  float scale(size_t j) const { return vectors.v[j]; }
  float shift(size_t j) const { return vectors.v[32 + j]; }
  template <typename Rule>
  Values make(Rule rule) const {
    Values y = x;
    for (int64_t t = 0; t < 24; ++t)
      for (size_t j = 0; j < 32; ++j) y.row(t)[j] = rule(x.row(t)[j], scale(j), shift(j));
    return y;
  }
  template <typename Rule>
  std::string cause(Rule rule) const {
    const Values right = make([](float a, float s, float b) { return a * (1 + s) + b; });
    RunMaker a, b;
    a.add("net.mod", vectors).add("net.norm", x).in("net.attn", right).add("net.attn", right);
    b.add("net.mod", vectors).add("net.norm", x).in("net.attn", make(rule)).add("net.attn", make(rule));
    return first_cause(compare_runs(a.run, b.run, {}));
  }
};

TEST(ChannelwiseFamily, FormsOfAModulation) {
  const Modulated m;
  EXPECT_EQ(m.cause([](float a, float s, float b) { return a * s + b; }), "modulate.one_plus_missing");
  EXPECT_EQ(m.cause([](float a, float s, float b) { return a * (1 - s) + b; }), "modulate.form");
  EXPECT_EQ(m.cause([](float a, float s, float b) { return a * std::exp(s) + b; }), "modulate.form");
  EXPECT_EQ(m.cause([](float a, float s, float b) { return (a + b) * (1 + s); }), "modulate.shift");
  EXPECT_EQ(m.cause([](float a, float s, float b) { return a * (1 + b) + s; }), "modulate.shift_scale_exchanged");
  EXPECT_EQ(m.cause([](float a, float, float b) { return a + b; }), "modulate.scale_missing");
}

TEST(ChannelwiseFamily, OneTermIsWorkedBackAndExplained) {
  RunMaker a, b;
  const Values x = noise({1, 24, 32}, 1), f = noise({1, 24, 32}, 2), gate = noise({1, 32}, 3);
  const auto sum = [&](const Values& branch) {
    Values y = x;
    for (int64_t t = 0; t < 24; ++t)
      for (size_t j = 0; j < 32; ++j) y.row(t)[j] += gate.v[j] * branch.row(t)[j];
    return y;
  };
  Values rolled = f;
  std::rotate(rolled.v.begin(), rolled.v.begin() + 32, rolled.v.end());
  for (RunMaker* run : {&a, &b}) run->in("net.block", x).add("net.block.gate", gate).add("net.block.mlp", f);
  a.add("net.block", sum(f)), b.add("net.block", sum(rolled));
  EXPECT_EQ(first_cause(compare_runs(a.run, b.run, {})), "layout.rolled");
}

TEST(NormFamily, FormsOfANorm) {
  const Values x = noise({1, 40, 32}, 1, 2);
  const std::vector<float> w = noise({32}, 2).v;
  const auto weights = std::make_shared<Weights>(std::map<std::string, Values>{{"net.m.weight", {{32}, w}}});
  const auto make = [&](auto&& rule) {
    Values y = x;
    for (int64_t t = 0; t < 40; ++t) {
      double squares = 0, absolute = 0;
      for (const float v : x.row(t)) squares += v * v, absolute += std::fabs(v);
      for (size_t j = 0; j < 32; ++j)
        y.row(t)[j] = static_cast<float>(rule(x.row(t)[j], squares / 32, absolute / 32, j));
    }
    return y;
  };
  const Values right = make([&](double v, double s, double, size_t j) { return v / std::sqrt(s + 1e-6) * w[j]; });
  const auto cause = [&](auto&& rule) { return cause_of(x, right, make(rule), weights); };
  EXPECT_EQ(cause([&](double v, double s, double, size_t j) { return v / std::sqrt(s + 0.37) * w[j]; }), "norm.eps");
  EXPECT_EQ(cause([&](double v, double, double a, size_t j) { return v / a * w[j]; }), "norm.kind");
  EXPECT_EQ(cause([&](double v, double s, double, size_t j) { return v / std::sqrt(s + 1e-6) * w[31 - j]; }),
            "norm.different_weight");
  EXPECT_EQ(cause([&](double v, double s, double, size_t j) { return v / std::sqrt(s + 1e-6) * (1 + w[j]); }),
            "norm.one_plus_weight");
  // Other powers of the mean of the squares than one over its root.
  for (const double power : {0.5, -1.0, 1.0, -0.25})
    EXPECT_EQ(cause([&](double v, double s, double, size_t j) { return v * std::pow(s + 1e-6, power) * w[j]; }),
              "norm.kind")
        << power;
}

}  // namespace
}  // namespace lockstep
