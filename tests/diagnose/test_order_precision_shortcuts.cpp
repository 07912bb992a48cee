// Mistakes of porting by their kind: steps that changed places, low precision inside a stage, shortcuts from elsewhere,
// numbers drawn in another order, quantised weights put together otherwise, other tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

template <typename Rule>
Values joined(const Values& x, const Values& y, Rule rule) {
  Values out = x;
  for (size_t i = 0; i < out.v.size(); ++i) out.v[i] = static_cast<float>(rule(x.v[i], y.v[i]));
  return out;
}

// --- steps in another order
struct Gated {
  Values gate = noise({1, 20, 32}, 1), up = noise({1, 20, 32}, 2);
  template <typename Rule>
  std::string cause(Rule rule) const {
    const Values right = joined(gate, up, [](double g, double u) { return silu(g) * u; });
    const Values wrong = joined(gate, up, rule);
    RunMaker a, b;
    a.add("mlp.gate", gate).add("mlp.up", up).in("mlp.down", right).add("mlp.down", right);
    b.add("mlp.gate", gate).add("mlp.up", up).in("mlp.down", wrong).add("mlp.down", wrong);
    return first_cause(compared(a, b));
  }
};

TEST(OrderPrecisionShortcuts, ActivationAndProductChangePlaces) {
  const Gated gated;
  EXPECT_EQ(gated.cause([](double g, double u) { return silu(g * u); }), "activation.other_input");
  EXPECT_EQ(gated.cause([](double g, double u) { return silu(g) * silu(u); }), "activation.added");
  EXPECT_EQ(gated.cause([](double g, double u) { return silu(g) + u; }), "activation.product_missing");
  EXPECT_EQ(gated.cause([](double g, double u) { return silu(u) * g; }), "activation.gate_up_exchanged");
  EXPECT_EQ(gated.cause([](double g, double u) { return std::sin(3 * g * u); }), "");  // no guess
}

// The reference makes `up` after the activation; yours had it before and fed the product.
TEST(OrderPrecisionShortcuts, WhatYourRunMadeEarlierMayBeWhatItUsed) {
  const Values gate = noise({1, 20, 32}, 1), up = noise({1, 20, 32}, 2);
  const Values product = joined(gate, up, [](double g, double u) { return g * u; });
  RunMaker a, b;
  a.add("mlp.gate", gate).in("mlp.act", gate).add("mlp.act", mapped(gate, silu)).add("mlp.up", up);
  a.add("mlp", joined(mapped(gate, silu), up, [](double x, double u) { return x * u; }));
  b.add("mlp.gate", gate).add("mlp.up", up).in("mlp.act", product).add("mlp.act", mapped(product, silu));
  b.add("mlp", mapped(product, silu));
  const Comparison result = compared(a, b);
  EXPECT_EQ(first_cause(result), "activation.other_input");
  EXPECT_NE(result.causes[0].explanation.find("gate * up"), std::string::npos) << result.causes[0].explanation;
}

TEST(OrderPrecisionShortcuts, BiasOnTheOtherSideOfTheActivation) {
  const Values x = noise({1, 20, 32}, 1);
  auto weights = std::make_shared<MemoryWeights>();
  weights->add("mlp.proj.bias", noise({32}, 3));
  const std::vector<float> bias = weights->find("mlp.proj.bias")->v;
  const auto make = [&](double before, double after) {
    Values y = x;
    for (size_t i = 0; i < y.v.size(); ++i)
      y.v[i] = static_cast<float>(silu(x.v[i] + before * bias[i % 32]) + after * bias[i % 32]);
    return y;
  };
  const auto cause = [&](double before, double after) {
    RunMaker a, b;
    a.in("mlp.act", x).add("mlp.act", make(0, 0)), b.in("mlp.act", x).add("mlp.act", make(before, after));
    return first_cause(compared(a, b, weights));
  };
  EXPECT_EQ(cause(-1, 1), "activation.other_input");
  EXPECT_EQ(cause(-1, 0), "linear.bias_missing");
  EXPECT_EQ(cause(1, 0), "linear.bias_doubled");
}

// --- low precision inside
struct Normed {
  Values x = noise({1, 40, 48}, 1);
  std::vector<float> w = noise({48}, 2).v;
  std::string cause(double (*squares)(double), double (*factor)(double), double (*weight)(double)) const {
    const auto none = [](double v) { return v; };
    const auto make = [&](auto&& s, auto&& f, auto&& g) {
      Values y = x;
      for (int64_t t = 0; t < 40; ++t) {
        double sum = 0;
        for (const float v : x.row(t)) sum += static_cast<double>(v) * v / 48;
        for (size_t j = 0; j < 48; ++j)
          y.row(t)[j] = static_cast<float>(x.row(t)[j] * f(1 / std::sqrt(s(sum) + 1e-6)) * g(w[j]));
      }
      return y;
    };
    auto weights = std::make_shared<MemoryWeights>();
    weights->add("net.norm.weight", {{48}, w});
    RunMaker a, b;
    a.in("net.norm", x).add("net.norm", make(none, none, none));
    b.in("net.norm", x).add("net.norm", make(squares, factor, weight));
    return first_cause(compared(a, b, weights));
  }
};

TEST(OrderPrecisionShortcuts, PartsOfANormInAPoorerFormat) {
  const Normed norm;
  const auto none = [](double v) { return v; };
  EXPECT_EQ(norm.cause(bf16, none, none), "precision.bf16");
  EXPECT_EQ(norm.cause(none, f16, none), "precision.f16");
  EXPECT_EQ(norm.cause(none, none, bf16), "precision.bf16");
}

// cos and sin side by side, [tokens, pairs, 2], of position * frequency with the frame standing still.
Values grid_table(const std::function<double(double, double)>& angle) {
  Values out = make_values({24, 12, 2});
  for (int64_t t = 0; t < 24; ++t)
    for (int64_t i = 0; i < 12; ++i) {
      const double position = i < 6 ? static_cast<double>(t / 6) - 2 : static_cast<double>(t % 6) - 3;
      const double a = angle(position, std::pow(1e4, -static_cast<double>(i % 6) / 6));
      out.v[static_cast<size_t>((t * 12 + i) * 2)] = static_cast<float>(std::cos(a));
      out.v[static_cast<size_t>((t * 12 + i) * 2 + 1)] = static_cast<float>(std::sin(a));
    }
  return out;
}

TEST(OrderPrecisionShortcuts, AnglesInAPoorerFormat) {
  const Values right = grid_table([](double p, double f) { return p * f; });
  const auto cause = [&](const std::function<double(double, double)>& angle) {
    RunMaker a, b;
    a.add("net.pos", right), b.add("net.pos", grid_table(angle));
    return first_cause(compared(a, b));
  };
  EXPECT_EQ(cause([](double p, double f) { return bf16(p * f); }), "precision.bf16");
  EXPECT_EQ(cause([](double p, double f) { return p * f16(f); }), "precision.f16");
  EXPECT_EQ(cause([](double p, double f) { return p * f + 1e-3 * std::sin(9 * p + 70 * f); }), "");  // no guess
}

// cos alone, [tokens, d], the halves alike: as a text model keeps it.
TEST(OrderPrecisionShortcuts, TextAnglesInAPoorerFormat) {
  const auto table = [](auto&& angle) {
    Values out = make_values({1, 30, 16});
    for (int64_t t = 0; t < 30; ++t)
      for (int64_t i = 0; i < 16; ++i)
        out.row(t)[static_cast<size_t>(i)] =
            static_cast<float>(std::cos(angle(static_cast<double>(t), std::pow(1e6, -static_cast<double>(i % 8) / 8))));
    return out;
  };
  RunMaker a, b;
  a.add("net.rotary.0", table([](double p, double f) { return p * f; }));
  b.add("net.rotary.0", table([](double p, double f) { return bf16(bf16(p) * bf16(f)); }));
  EXPECT_EQ(first_cause(compared(a, b)), "precision.bf16");
}

TEST(OrderPrecisionShortcuts, CoefficientsOfAModulationInAPoorerFormat) {
  const Values x = noise({1, 24, 32}, 1), mod = noise({1, 64}, 2, 0.5f);
  const auto make = [&](auto&& round) {
    Values y = x;
    for (int64_t t = 0; t < 24; ++t)
      for (size_t j = 0; j < 32; ++j)
        y.row(t)[j] = static_cast<float>(x.row(t)[j] * round(1.0 + mod.v[j]) + mod.v[32 + j]);
    return y;
  };
  const Values right = make([](double v) { return v; }), wrong = make(bf16);
  RunMaker a, b;
  a.add("net.mod", mod).add("net.norm", x).in("net.attn", right).add("net.attn", right);
  b.add("net.mod", mod).add("net.norm", x).in("net.attn", wrong).add("net.attn", wrong);
  EXPECT_EQ(first_cause(compared(a, b)), "precision.bf16");
}

// --- a shortcut from elsewhere: many tensors of that size lie in between, and a list of caches comes first
TEST(OrderPrecisionShortcuts, ShortcutFromAnotherTensorOfTheBlock) {
  RunMaker a, b;
  const Values x = noise({1, 24, 32}, 1), branch = noise({1, 24, 32}, 2), normed = noise({1, 24, 32}, 3);
  const auto sum = [](double p, double q) { return p + q; };
  for (RunMaker* run : {&a, &b}) {
    run->in("net.block.x", x);
    for (unsigned i = 0; i < 12; ++i) run->in("net.block.cache." + std::to_string(i), noise({1, 24, 32}, 50 + i));
    run->add("net.block.norm", normed);
    for (unsigned i = 0; i < 10; ++i) run->add("net.block.step" + std::to_string(i), noise({1, 24, 32}, 20 + i));
    run->add("net.block.conv", branch);
  }
  a.add("net.block", joined(x, branch, sum)), b.add("net.block", joined(normed, branch, sum));
  EXPECT_EQ(first_cause(compared(a, b)), "residual.other_input");
}

TEST(OrderPrecisionShortcuts, BranchNormalisedBeforeItIsAdded) {
  RunMaker a, b;
  const Values x = noise({1, 24, 32}, 1), branch = noise({1, 24, 32}, 2, 3);
  Values normed = branch;
  for (int64_t t = 0; t < 24; ++t) {
    double squares = 0;
    for (const float v : branch.row(t)) squares += static_cast<double>(v) * v / 32;
    for (float& v : normed.row(t)) v = static_cast<float>(v / std::sqrt(squares + 1e-6));
  }
  const auto sum = [](double p, double q) { return p + q; };
  for (RunMaker* run : {&a, &b}) run->in("net.block", x).add("net.block.attn", branch);
  a.in("net.block.mlp", joined(x, branch, sum)), b.in("net.block.mlp", joined(x, normed, sum));
  EXPECT_EQ(first_cause(compared(a, b)), "norm.added");
}

// --- noise
TEST(OrderPrecisionShortcuts, NoiseDrawnWithItsAxesInAnotherOrder) {
  const Values drawn = noise({4, 8, 12}, 7);  // channels, rows, columns
  const auto packed = [](const Values& x) {
    return reshaped(permuted(reshaped(x, {4, 4, 2, 6, 2}), {1, 3, 0, 2, 4}), {1, 24, 16});
  };
  const Values last = permuted(reshaped(drawn, {8, 12, 4}), {2, 0, 1});  // drawn channels last
  Values shuffled = packed(drawn);
  std::mt19937 engine(3);
  std::shuffle(shuffled.v.begin(), shuffled.v.end(), engine);
  const auto cause = [&](const Values& wrong) {
    RunMaker a, b;
    a.add("initial_latents", packed(drawn), Role::kCheckpoint), b.add("initial_latents", wrong, Role::kCheckpoint);
    return first_cause(compared(a, b));
  };
  EXPECT_EQ(cause(packed(last)), "layout.axes");
  EXPECT_EQ(cause(shuffled), "layout.permuted");
  EXPECT_EQ(cause(noise({1, 24, 16}, 8)), "latents.other_noise");
}

// --- quantised weights
TEST(OrderPrecisionShortcuts, QuantisedWeightPutTogetherOtherwise) {
  const Values x = noise({1, 12, 64}, 1), w = noise({48, 64}, 2);
  auto weights = std::make_shared<MemoryWeights>();
  weights->add("net.m.weight", w);
  const auto product = [&](const Values& weight) {
    Values y = make_values({1, 12, 48});
    for (int64_t t = 0; t < 12; ++t)
      for (int64_t j = 0; j < 48; ++j) {
        double sum = 0;
        for (size_t k = 0; k < 64; ++k) sum += static_cast<double>(x.row(t)[k]) * weight.row(j)[k];
        y.row(t)[static_cast<size_t>(j)] = static_cast<float>(sum);
      }
    return y;
  };
  const auto cause = [&](auto&& read) {  // read(number, step, low, place in the group)
    Values changed = w;
    for (size_t begin = 0; begin < w.v.size(); begin += 32) {
      const auto [low, high] = std::minmax_element(w.v.begin() + static_cast<std::ptrdiff_t>(begin),
                                                   w.v.begin() + static_cast<std::ptrdiff_t>(begin + 32));
      const double step = (static_cast<double>(*high) - *low) / 15;
      for (size_t i = 0; i < 32; ++i)
        changed.v[begin + i] = static_cast<float>(
            read([&, base = *low](size_t k) { return std::nearbyint((w.v[begin + k] - base) / step); }, step, *low, i));
    }
    RunMaker a, b;
    a.in("net.m", x).add("net.m", product(w)), b.in("net.m", x).add("net.m", product(changed));
    return first_cause(compared(a, b, weights));
  };
  using Step = double;
  EXPECT_EQ(cause([](auto&& q, Step s, double, size_t i) { return q(i) * s; }), "linear.weight_quantised");
  EXPECT_EQ(cause([](auto&& q, Step s, double, size_t i) { return (q(i) - 8) * s; }), "linear.weight_quantised");
  EXPECT_EQ(cause([](auto&& q, Step s, double z, size_t i) { return q(i ^ 1) * s + z; }), "linear.weight_quantised");
  EXPECT_EQ(cause([](auto&& q, Step, double, size_t i) { return q(i); }), "linear.weight_quantised");
  EXPECT_EQ(cause([](auto&& q, Step s, double z, size_t i) { return q(i) * s + z * std::sin(q(i)); }), "");
}

// --- tokens
RunMaker ids_run(const std::vector<std::vector<int64_t>>& rows) {
  RunMaker out;
  Values values = make_values({static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())});
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy(rows[i].begin(), rows[i].end(), values.row(static_cast<int64_t>(i)).begin());
  out.in("text.input_ids", values);
  std::vector<int64_t> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  const Tensor tensor = Tensor::from<int64_t>(values.shape, flat);
  out.run.records[0].dtype = DType::kI64;
  out.run.records[0].load = [tensor] { return tensor; };
  return out;
}

TEST(OrderPrecisionShortcuts, TokensInWords) {
  const RunMaker a = ids_run({{5, 6, 7, 8, 9, 10}, {5, 6, 30, 9, 0, 0}});
  CompareOptions options;
  options.text_of_tokens = [](const std::vector<int32_t>& ids) {
    std::string out;
    for (const int32_t id : ids) out += id == 7 ? "Fox" : id == 20 ? "fox" : " ";
    return out;
  };
  const auto words = [&](const std::vector<std::vector<int64_t>>& rows) {
    const Comparison result = compare_runs(a.run, ids_run(rows).run, options);
    EXPECT_EQ(first_cause(result), "input.other");
    return result.causes.empty() ? "" : result.causes[0].explanation;
  };
  EXPECT_NE(words({{5, 6, 20, 8, 9, 10}, {5, 6, 30, 9, 0, 0}}).find("lower case"), std::string::npos);
  EXPECT_NE(words({{5, 6, 7, 8, 9, 10}, {0, 0, 5, 6, 30, 9}}).find("padded"), std::string::npos);
  EXPECT_NE(words({{5, 8, 9, 10}, {5, 9, 0, 0}}).find("missing"), std::string::npos);  // other lengths have words too
}

}  // namespace
}  // namespace lockstep
