// Stages of a pipeline around the model: guidance, the sampler's step, latents, weights in few bits, captures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

// y = s cond + (1 - s) uncond, rescaled by a function of the lengths of a row's cond and of its combination.
struct Guided {
  Values cond = noise({2, 12, 16}, 1), uncond = noise({2, 12, 16}, 2);
  template <typename Factor>
  RunMaker run(double s, Factor factor) const {
    RunMaker maker;
    maker.add("transformer.out", cond, Role::kOutput, 0, {{"pass", "cond"}});
    maker.add("transformer.out", uncond, Role::kOutput, 0, {{"pass", "uncond"}});
    Values y = cond;
    for (size_t i = 0; i < y.v.size(); ++i) y.v[i] = static_cast<float>(s * cond.v[i] + (1 - s) * uncond.v[i]);
    const Values combined = y;
    for (int64_t t = 0; t < y.rows(); ++t)
      for (float& value : y.row(t)) value = static_cast<float>(value * factor(cond, combined, t));
    return maker.add("noise_pred", y, Role::kCheckpoint, 0);
  }
};

double by_length(const Values& a, const Values& b, int64_t t) {
  return std::sqrt(squared_norm(a.row(t)) / squared_norm(b.row(t)));
}

TEST(SamplerStages, RescalingsOfGuidance) {
  const Guided guided;
  const RunMaker right = guided.run(4, by_length);
  const auto cause = [&](const RunMaker& wrong) { return first_cause(right, wrong); };
  EXPECT_EQ(
      cause(guided.run(4, [](const Values& a, const Values& b, int64_t t) { return std::pow(by_length(a, b, t), 2); })),
      "guidance.rescale");
  EXPECT_EQ(
      cause(guided.run(4, [](const Values& a, const Values& b, int64_t t) { return 0.3 * by_length(a, b, t) + 0.7; })),
      "guidance.rescale");
  EXPECT_EQ(cause(guided.run(4,
                             [](const Values& a, const Values& b, int64_t t) {
                               const auto item = [&](const Values& x) {
                                 return std::span(x.v).subspan(static_cast<size_t>(t / 12 * 192), 192);
                               };
                               return std::sqrt(squared_norm(item(a)) / squared_norm(item(b)));
                             })),
            "guidance.rescale");
  EXPECT_EQ(cause(guided.run(-4, by_length)), "guidance.scale");
  // The right result times one factor is not a matter of guidance.
  EXPECT_EQ(cause(guided.run(4, [](const Values& a, const Values& b, int64_t t) { return -by_length(a, b, t); })),
            "affine.scale");
}

// One of the two predictions is multiplied before they are combined: by what brings it nearest to the other.
TEST(SamplerStages, APredictionFittedToTheOther) {
  Guided guided;  // two predictions of one picture are alike
  for (size_t i = 0; i < guided.uncond.v.size(); ++i)
    guided.uncond.v[i] = 0.8f * guided.cond.v[i] + 0.4f * guided.uncond.v[i];
  const auto item = [](const Values& x, size_t at) { return std::span(x.v).subspan(at * 192, 192); };
  const auto fitted = [&](bool of_cond, size_t items, bool by_length) {
    Guided out = guided;
    Values& own = of_cond ? out.cond : out.uncond;
    const Values& other = of_cond ? guided.uncond : guided.cond;
    for (size_t at = 0; at < 2; ++at) {
      const std::span<const float> a = items == 2 ? item(own, at) : std::span<const float>(own.v),
                                   b = items == 2 ? item(other, at) : std::span<const float>(other.v);
      const double factor = by_length ? std::sqrt(squared_norm(b) / squared_norm(a)) : dot(a, b) / squared_norm(a);
      for (size_t i = at * 192; i < (at + 1) * 192; ++i) own.v[i] = static_cast<float>(own.v[i] * factor);
      if (items == 1) {
        for (size_t i = 192; i < 384; ++i) own.v[i] = static_cast<float>(own.v[i] * factor);
        break;
      }
    }
    return out;
  };
  const auto plain = [](const Values&, const Values&, int64_t) { return 1.0; };
  const auto noise_pred = [](const RunMaker& run) { return values_from(run.run.records[2].load()); };
  const auto run_with = [&](const Values& y) {
    RunMaker maker;
    maker.add("transformer.out", guided.cond, Role::kOutput, 0, {{"pass", "cond"}});
    maker.add("transformer.out", guided.uncond, Role::kOutput, 0, {{"pass", "uncond"}});
    return maker.add("noise_pred", y, Role::kCheckpoint, 0);
  };
  for (const bool rescaled : {false, true}) {
    const auto combined = [&](const Guided& of) {
      if (!rescaled) return run_with(noise_pred(of.run(3.75, plain)));
      return run_with(noise_pred(
          of.run(3.75, [&](const Values&, const Values& y, int64_t t) { return by_length(guided.cond, y, t); })));
    };
    const RunMaker right = combined(guided);
    for (const size_t items : {1u, 2u}) {
      EXPECT_EQ(first_cause(right, combined(fitted(false, items, false))), "guidance.formula") << rescaled << items;
      EXPECT_EQ(first_cause(combined(fitted(false, items, false)), right), "guidance.formula") << rescaled << items;
    }
    if (!rescaled) {
      EXPECT_EQ(first_cause(right, combined(fitted(true, 2, false))), "guidance.formula");
    }
    EXPECT_EQ(first_cause(right, combined(fitted(false, 2, true))), "guidance.formula") << rescaled;
  }
  // Another scale stays another scale, round or not.
  EXPECT_EQ(first_cause(guided.run(3.75, plain), guided.run(3.448, plain)), "guidance.scale");
  EXPECT_EQ(first_cause(guided.run(3.75, by_length), guided.run(3.448, by_length)), "guidance.scale");
}

TEST(SamplerStages, PassesExchangedInOneItemOfABatch) {
  const Guided guided;
  const auto plain = [](const Values&, const Values&, int64_t) { return 1.0; };
  const RunMaker right = guided.run(4, plain), exchanged = guided.run(-3, plain);
  // The second item's prediction from the run with exchanged passes, the first item's from the right one.
  Values mixed = guided.cond;
  for (size_t i = 0; i < mixed.v.size(); ++i) {
    const double s = i < mixed.v.size() / 2 ? 4 : -3;
    mixed.v[i] = static_cast<float>(s * guided.cond.v[i] + (1 - s) * guided.uncond.v[i]);
  }
  RunMaker wrong;
  wrong.add("transformer.out", guided.cond, Role::kOutput, 0, {{"pass", "cond"}});
  wrong.add("transformer.out", guided.uncond, Role::kOutput, 0, {{"pass", "uncond"}});
  wrong.add("noise_pred", mixed, Role::kCheckpoint, 0);
  EXPECT_EQ(first_cause(right, exchanged), "guidance.exchanged");
  EXPECT_EQ(first_cause(right, wrong), "guidance.exchanged");
}

// Three steps x' = x + dt v with predictions that do not depend on x.
struct Sampled {
  Values x0 = noise({1, 24, 16}, 3);
  std::vector<Values> v = {noise({1, 24, 16}, 4), noise({1, 24, 16}, 5), noise({1, 24, 16}, 6)};
  std::vector<double> sigmas = {1, 0.71337, 0.38121, 0};

  template <typename Step>
  RunMaker run(Step step) const {
    RunMaker maker;
    maker.add("initial_latents", x0, Role::kCheckpoint);
    Values x = x0;
    for (int i = 0; i < 3; ++i) {
      maker.add("noise_pred", v[static_cast<size_t>(i)], Role::kCheckpoint, i);
      Values next = x;
      for (size_t e = 0; e < x.v.size(); ++e) next.v[e] = static_cast<float>(step(x.v[e], i, e));
      maker.add("latents", x = next, Role::kCheckpoint, i);
    }
    return maker;
  }
  double velocity(int step, size_t e) const { return v[static_cast<size_t>(step)].v[e]; }
  double dt(int step) const { return sigmas[static_cast<size_t>(step) + 1] - sigmas[static_cast<size_t>(step)]; }
};

TEST(SamplerStages, StepsOfOtherSamplers) {
  const Sampled s;
  const RunMaker right = s.run([&](double x, int i, size_t e) { return x + s.dt(i) * s.velocity(i, e); });
  const auto cause = [&](auto&& step) { return first_cause(right, s.run(step)); };
  EXPECT_EQ(cause([&](double x, int i, size_t e) { return x + 0.5 * s.dt(i) * s.velocity(i, e); }), "scheduler.scale");
  EXPECT_EQ(cause([&](double x, int i, size_t e) { return x - s.sigmas[static_cast<size_t>(i)] * s.velocity(i, e); }),
            "scheduler.dt");
  EXPECT_EQ(cause([&](double x, int i, size_t e) {
              const double dt = f16(s.sigmas[static_cast<size_t>(i) + 1]) - f16(s.sigmas[static_cast<size_t>(i)]);
              return x + dt * s.velocity(i, e);
            }),
            "precision.f16");
  EXPECT_EQ(cause([&](double x, int i, size_t e) { return x + s.dt(i) * s.velocity(std::max(0, i - 1), e); }),
            "scheduler.other_prediction");
  EXPECT_EQ(cause([&](double x, int i, size_t e) {
              if (i < 2) return x + s.dt(i) * s.velocity(i, e);
              return x + s.dt(i) * (1.9 * s.velocity(2, e) - 1.3 * s.velocity(1, e) + 0.4 * s.velocity(0, e));
            }),
            "scheduler.formula");
  const Values fresh = noise(s.x0.shape, 9);
  EXPECT_EQ(cause([&](double x, int i, size_t e) { return 0.6 * x - 0.5 * s.velocity(i, e) + 0.3 * fresh.v[e]; }),
            "scheduler.noise");
}

// A square layer whose weight was quantised and put together by `read`.
TEST(SamplerStages, WeightsInFewBitsMisread) {
  constexpr int64_t n = 64;
  const Values x = noise({1, 30, n}, 10), w = noise({n, n}, 11, 0.1f), b = noise({n}, 12);
  const auto layer = [&](const Values& weight) {
    Values y = make_values({1, 30, n});
    for (int64_t i = 0; i < 30; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = b.v[static_cast<size_t>(j)];
        for (size_t k = 0; k < n; ++k) sum += static_cast<double>(x.row(i)[k]) * weight.row(j)[k];
        y.row(i)[static_cast<size_t>(j)] = static_cast<float>(sum);
      }
    return y;
  };
  auto weights = std::make_shared<MemoryWeights>();
  weights->add("net.m.weight", w), weights->add("net.m.bias", b);
  const auto cause = [&](const Values& weight) {
    RunMaker right, wrong;
    right.in("net.m", x).add("net.m", layer(w)), wrong.in("net.m", x).add("net.m", layer(weight));
    return first_cause(right, wrong, weights);
  };
  const auto largest = [&](int64_t row, int64_t begin, int64_t count) {
    float most = 0;
    for (int64_t i = begin; i < begin + count; ++i)
      most = std::max(most, std::fabs(w.row(row)[static_cast<size_t>(i)]));
    return static_cast<double>(most);
  };
  const auto made = [&](auto&& rule) {
    Values out = w;
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < n; ++i)
        out.row(j)[static_cast<size_t>(i)] = static_cast<float>(rule(j, i, w.row(j)[static_cast<size_t>(i)]));
    return out;
  };
  // Five bits in groups of 32, the scales of column i taken for those of row i.
  EXPECT_EQ(cause(made([&](int64_t j, int64_t i, double v) {
              const double step = largest(j, i / 32 * 32, 32) / 15, other = largest(i, j / 32 * 32, 32) / 15;
              return std::nearbyint(v / step) * other;
            })),
            "linear.weight_quantised");
  // Float8 with a scale a row that was divided by.
  EXPECT_EQ(cause(made([&](int64_t j, int64_t, double v) {
              const double step = largest(j, 0, n) / 448;
              return float_from(float8_e4m3_from(static_cast<float>(v / step))) / step;
            })),
            "linear.weight_quantised");
  EXPECT_EQ(cause(made([&](int64_t, int64_t i, double v) {  // each input has a scale of its own
              double most = 0;
              for (int64_t j = 0; j < n; ++j)
                most = std::max(most, std::fabs(static_cast<double>(w.row(j)[static_cast<size_t>(i)])));
              return std::nearbyint(v / most * 127) * most / 127;
            })),
            "linear.weight_quantised");
  EXPECT_EQ(cause(made([](int64_t, int64_t, double v) {
              return float_from(Half{bfloat16_from(static_cast<float>(v)).bits});
            })),
            "linear.different_weight");
  Values late = w;
  std::rotate(late.v.begin(), late.v.begin() + 4, late.v.end());
  EXPECT_EQ(cause(late), "linear.different_weight");
}

// The picture at the end is held to bounds before the step goes towards it.
TEST(SamplerStages, AHeldEnd) {
  const Sampled s;
  const RunMaker right = s.run([&](double x, int i, size_t e) { return x + s.dt(i) * s.velocity(i, e); });
  const RunMaker held = s.run([&](double x, int i, size_t e) {
    const double sigma = s.sigmas[static_cast<size_t>(i)], end = std::clamp(x - sigma * s.velocity(i, e), -1.5, 1.5);
    return end + s.sigmas[static_cast<size_t>(i) + 1] / sigma * (x - end);
  });
  EXPECT_EQ(first_cause(right, held), "scheduler.formula");
}

TEST(SamplerStages, CapturesAndActivations) {
  const Values x = noise({1, 16, 8, 4, 6}, 13), other = noise({1, 16, 8, 4, 6}, 14);
  const auto run = [&](const Values& y) {
    RunMaker maker;
    return maker.in("net.a", x).add("net.a", other).in("net.b", other).add("net.b", y).in("net.c", x).add("net.c", x);
  };
  const Values right = noise(x.shape, 15);
  const auto cause = [&](const Values& wrong) { return first_cause(run(right), run(wrong)); };
  EXPECT_EQ(cause(reshaped(permuted(other, {0, 2, 3, 4, 1}), x.shape)), "capture.other_stage");
  Values lost = right;
  for (size_t i = 0; i < lost.v.size(); ++i) lost.v[i] = i * 7919 % 10 < 3 ? 0 : lost.v[i] / 0.7f;
  EXPECT_EQ(cause(lost), "garbage.zeros");
  float most = 0;
  for (const float v : right.v) most = std::max(most, std::fabs(v));
  EXPECT_EQ(cause(mapped(right, [&](double v) { return std::nearbyint(v / most * 127) * most / 127; })),
            "precision.integer");
}

// The last step is not taken: what is decoded comes from the latents before it.
TEST(SamplerStages, LatentsOfTheStepBefore) {
  const Values z[] = {noise({1, 6, 16}, 16), noise({1, 6, 16}, 17)};  // 2 x 3 tokens of 4 channels
  const auto decoded = [&](const Values& packed) {
    Values y = permuted(reshaped(packed, {2, 3, 4, 2, 2}), {2, 0, 3, 1, 4});
    for (size_t i = 0; i < y.v.size(); ++i)
      y.v[i] = y.v[i] * (1 + 0.3f * static_cast<float>(i / 24)) + 0.2f * static_cast<float>(i / 24);
    return reshaped(y, {1, 4, 1, 4, 6});
  };
  RunMaker a, b;
  for (RunMaker* run : {&a, &b}) run->add("latents", z[0], Role::kCheckpoint, 0);
  a.add("latents", z[1], Role::kCheckpoint, 1);
  a.add("latents_denormalized", decoded(z[1]), Role::kCheckpoint),
      b.add("latents_denormalized", decoded(z[0]), Role::kCheckpoint);
  EXPECT_EQ(first_cause(a, b), "stage.replaced");
}

// In bf16, with the rescaling of the other pass: the whole formula is the other pass's.
TEST(SamplerStages, PassesExchangedWithTheirRescalingInBf16) {
  const auto run = [](bool exchanged) {
    const Values cond = mapped(noise({1, 36, 64}, 1), bf16);
    Values uncond = noise({1, 36, 64}, 2, 0.3f);
    for (size_t i = 0; i < uncond.v.size(); ++i) uncond.v[i] = static_cast<float>(bf16(uncond.v[i] + cond.v[i]));
    const Values &first = exchanged ? uncond : cond, &second = exchanged ? cond : uncond;
    Values y = cond;
    for (size_t i = 0; i < y.v.size(); ++i)
      y.v[i] = static_cast<float>(bf16(second.v[i] + bf16(2.5 * bf16(first.v[i] - second.v[i]))));
    for (int64_t t = 0; t < y.rows(); ++t) {
      const double length = std::sqrt(squared_norm(first.row(t)) / squared_norm(y.row(t)));
      for (float& value : y.row(t)) value = static_cast<float>(bf16(value * bf16(length)));
    }
    RunMaker maker;
    maker.add("transformer.out", cond, Role::kOutput, 0, {{"pass", "cond"}});
    maker.add("transformer.out", uncond, Role::kOutput, 0, {{"pass", "uncond"}});
    maker.add("noise_pred", y, Role::kCheckpoint, 0);
    for (RecordedTensor& record : maker.run.records) record.dtype = DType::kBF16;
    return maker;
  };
  EXPECT_EQ(first_cause(run(false), run(true)), "guidance.exchanged");
}

}  // namespace
}  // namespace lockstep
