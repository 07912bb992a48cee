// The same kinds of mistakes inside the stages that have formulas of their own: attention, guidance, the sampler's
// step, features of the time, convolutions, embeddings.
#include <gtest/gtest.h>

#include <cmath>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

double as_it_is(double x) {
  return x;
}

// One stream, causal, two heads of 16.
struct Attended {
  Values q = noise({1, 14, 32}, 1), k = noise({1, 14, 32}, 2), v = noise({1, 14, 32}, 3);
  struct How {
    double (*scores)(double) = as_it_is;
    double (*weights)(double) = as_it_is;
    double before = 0.25, after = 1;
    bool masked_late = false;
  };
  Values make(const How& how) const {
    Values out = make_values(q.shape);
    for (size_t h = 0; h < 2; ++h)
      for (int64_t t = 0; t < 14; ++t) {
        std::vector<double> e(14);
        double total = 0;
        for (int64_t s = 0; s < 14; ++s) {
          double sum = 0;
          for (size_t j = 0; j < 16; ++j) sum += static_cast<double>(q.row(t)[h * 16 + j]) * k.row(s)[h * 16 + j];
          const bool hidden = s > t;
          e[static_cast<size_t>(s)] = hidden && !how.masked_late ? 0 : std::exp(how.scores(sum * how.before));
          total += e[static_cast<size_t>(s)];
        }
        for (int64_t s = 0; s <= t; ++s)
          for (size_t j = 0; j < 16; ++j)
            out.row(t)[h * 16 + j] +=
                static_cast<float>(how.after * how.weights(e[static_cast<size_t>(s)] / total) * v.row(s)[h * 16 + j]);
      }
    return out;
  }
  std::string cause(const How& how) const {
    RunMaker a, b;
    for (RunMaker* run : {&a, &b}) run->add("net.attn.to_q", q).add("net.attn.to_k", k).add("net.attn.to_v", v);
    a.in("net.attn.to_out", make({})), b.in("net.attn.to_out", make(how));
    a.add("net.attn.to_out", make({})), b.add("net.attn.to_out", make(how));
    return first_cause(a, b);
  }
};

TEST(MistakesInsideStages, StepsOfAnAttention) {
  const Attended attended;
  EXPECT_EQ(attended.cause({.scores = bf16}), "precision.bf16");
  EXPECT_EQ(attended.cause({.weights = f16}), "precision.f16");
  EXPECT_EQ(attended.cause({.before = 1, .after = 0.25}), "attention.scale");
  EXPECT_EQ(attended.cause({.masked_late = true}), "attention.softmax");
}

TEST(MistakesInsideStages, Guidance) {
  const Values cond = noise({1, 20, 16}, 1), uncond = noise({1, 20, 16}, 2);
  const auto length = [](std::span<const float> x) { return std::sqrt(squared_norm(x)); };
  const auto run = [&](double (*step)(double), bool by_uncond) {
    RunMaker maker;
    maker.add("transformer.out", cond, Role::kOutput, 0, {{"pass", "cond"}});
    maker.add("transformer.out", uncond, Role::kOutput, 0, {{"pass", "uncond"}});
    Values y = cond;
    for (int64_t t = 0; t < 20; ++t) {
      for (size_t j = 0; j < 16; ++j) {
        const double a = step(cond.row(t)[j]), b = step(uncond.row(t)[j]);
        y.row(t)[j] = static_cast<float>(step(b + step(3.5 * step(a - b))));
      }
      const double factor = length(cond.row(t)) / (by_uncond ? length(uncond.row(t)) : length(y.row(t)));
      for (float& value : y.row(t)) value = static_cast<float>(value * factor);
    }
    return maker.add("noise_pred", y, Role::kCheckpoint, 0);
  };
  EXPECT_EQ(first_cause(run(as_it_is, false), run(bf16, false)), "precision.bf16");
  EXPECT_EQ(first_cause(run(as_it_is, false), run(as_it_is, true)), "guidance.rescale");
}

TEST(MistakesInsideStages, TheStepOfTheSampler) {
  const Values x = noise({1, 20, 16}, 1), v = noise({1, 20, 16}, 2);
  const auto run = [&](double dt) {
    RunMaker maker;
    maker.add("initial_latents", x, Role::kCheckpoint).add("noise_pred", v, Role::kCheckpoint, 0);
    Values y = x;
    for (size_t i = 0; i < y.v.size(); ++i) y.v[i] = static_cast<float>(x.v[i] + dt * v.v[i]);
    return maker.add("latents", y, Role::kCheckpoint, 0);
  };
  EXPECT_EQ(first_cause(run(-0.12345), run(bf16(-0.12345))), "precision.bf16");
}

TEST(MistakesInsideStages, FeaturesOfTheTime) {
  const Values t{{1}, {0.8768f}};
  const auto features = [&](double (*angle)(double), double (*frequency)(double)) {
    Values y = make_values({1, 64});
    for (size_t i = 0; i < 32; ++i) {
      const double a = angle(t.v[0] * 1000.0 * frequency(std::pow(1e4, -static_cast<double>(i) / 32)));
      y.v[i] = static_cast<float>(std::cos(a)), y.v[i + 32] = static_cast<float>(std::sin(a));
    }
    return y;
  };
  const auto cause = [&](const Values& wrong) {
    RunMaker a, b;
    a.in("net.time", t).add("net.time", features(as_it_is, as_it_is)), b.in("net.time", t).add("net.time", wrong);
    return first_cause(a, b);
  };
  EXPECT_EQ(cause(features(bf16, as_it_is)), "precision.bf16");
  EXPECT_EQ(cause(features(as_it_is, f16)), "precision.f16");
}

// A convolution of single pixels with six channels in and four out.
TEST(MistakesInsideStages, Convolution) {
  const Values x = noise({1, 6, 8, 8}, 1), w = noise({4, 6, 1, 1}, 2);
  auto weights = std::make_shared<MemoryWeights>();
  weights->add("net.conv.weight", w), weights->add("net.conv.bias", noise({4}, 3));
  const std::vector<float> bias = weights->find("net.conv.bias")->v;
  const auto make = [&](double (*input)(double), double (*added)(double), size_t roll) {
    Values y = make_values({1, 4, 8, 8});
    for (size_t o = 0; o < 4; ++o)
      for (size_t p = 0; p < 64; ++p) {
        double sum = added(bias[o]);
        for (size_t i = 0; i < 6; ++i) sum += w.v[o * 6 + i] * input(x.v[(i + 6 - roll) % 6 * 64 + p]);
        y.v[o * 64 + p] = static_cast<float>(sum);
      }
    return y;
  };
  const auto cause = [&](const Values& wrong) {
    RunMaker a, b;
    a.in("net.conv", x).add("net.conv", make(as_it_is, as_it_is, 0)), b.in("net.conv", x).add("net.conv", wrong);
    return first_cause(a, b, weights);
  };
  EXPECT_EQ(cause(make(f16, as_it_is, 0)), "precision.f16");
  EXPECT_EQ(cause(make(as_it_is, bf16, 0)), "convolution.different_bias");
  EXPECT_EQ(cause(make(as_it_is, as_it_is, 1)), "convolution.input_order");
}

// Heads of a norm cut otherwise, and an activation in front of it.
TEST(MistakesInsideStages, InputOfANorm) {
  const Values x = noise({1, 12, 4, 16}, 1);
  const auto norm = [](const Values& in) {
    Values y = in;
    for (int64_t i = 0; i < in.rows(); ++i) {
      double squares = 0;
      for (const float value : in.row(i)) squares += static_cast<double>(value) * value / 16;
      for (float& value : y.row(i)) value = static_cast<float>(value / std::sqrt(squares + 1e-6));
    }
    return y;
  };
  const auto cause = [&](const Values& wrong) {
    RunMaker a, b;
    a.in("net.norm", x).add("net.norm", norm(x)), b.in("net.norm", x).add("net.norm", norm(wrong));
    return first_cause(a, b);
  };
  EXPECT_EQ(cause(reshaped(permuted(reshaped(x, {12, 16, 4}), {0, 2, 1}), x.shape)), "layout.heads");
  EXPECT_EQ(cause(mapped(x, [](double v) { return v / (1 + std::exp(-v)); })), "activation.added");
}

TEST(MistakesInsideStages, OtherRowsOfAnEmbedding) {
  const Values table = noise({40, 8}, 1);
  auto weights = std::make_shared<MemoryWeights>();
  weights->add("net.embed.weight", table);
  const auto run = [&](const std::vector<int64_t>& ids) {
    RunMaker maker;
    const Tensor given = Tensor::from<int64_t>({1, static_cast<int64_t>(ids.size())}, ids);
    maker.in("net.embed", make_values(given.shape()));
    maker.run.records[0].dtype = DType::kI64, maker.run.records[0].load = [given] { return given; };
    Values y = make_values({1, given.numel(), 8});
    for (size_t i = 0; i < ids.size(); ++i)
      std::copy(table.row(ids[i]).begin(), table.row(ids[i]).end(), y.row(static_cast<int64_t>(i)).begin());
    return maker.add("net.embed", y);
  };
  const auto without_input = [](RunMaker maker) {
    maker.run.records.erase(maker.run.records.begin());
    return maker;
  };
  EXPECT_EQ(first_cause(run({3, 4, 5, 6}), without_input(run({3, 9, 17, 6})), weights), "input.other");
  EXPECT_EQ(first_cause(run({3, 4, 5, 6}), without_input(run({3, 6})), weights), "input.other");
}

}  // namespace
}  // namespace lockstep
