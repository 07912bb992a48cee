// The number a model is told at each step, in each pass, for each item; and the dt that a sampler makes of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

const std::vector<double> kShifted{1.0, 0.9375, 0.857143, 0.75, 0.6, 0.375};

// Two passes of two items at each step; `told` says what a pass (0: cond, 1: uncond) hears at a step for an item.
using Telling = std::function<double(int pass, int step, int item)>;
Comparison of_times(const Telling& told) {
  RunMaker a, b;
  for (int step = 0; step < 6; ++step)
    for (int pass = 0; pass < 2; ++pass) {
      const Tags tags{{"pass", pass ? "uncond" : "cond"}};
      const float right = static_cast<float>(kShifted[static_cast<size_t>(step)]);
      a.add("net.timestep", {{2}, {right, right}}, Role::kInput, step, tags);
      b.add("net.timestep", {{2}, {static_cast<float>(told(pass, step, 0)), static_cast<float>(told(pass, step, 1))}},
            Role::kInput, step, tags);
    }
  return compared(a, b);
}
double shifted(int step) {
  return kShifted[static_cast<size_t>(step)];
}

TEST(SamplerTimes, OnePassAloneIsTold) {
  for (const int wrong : {0, 1}) {
    const Comparison thousands =
        of_times([&](int pass, int step, int) { return shifted(step) * (pass == wrong ? 1000 : 1); });
    EXPECT_EQ(first_cause(thousands), "timestep.scale");
    EXPECT_NE(thousands.causes[0].explanation.find(wrong ? "pass uncond alone" : "pass cond alone"), std::string::npos);
    EXPECT_EQ(first_cause(of_times([&](int pass, int step, int) { return pass == wrong ? step : shifted(step); })),
              "timestep.index_as_value");
    EXPECT_EQ(first_cause(of_times([&](int pass, int step, int) {
                return pass == wrong ? shifted(std::min(step + 1, 5)) : shifted(step);
              })),
              "timestep.step_index");
    EXPECT_EQ(first_cause(of_times([&](int pass, int step, int) {
                return pass == wrong ? std::trunc(1000 * shifted(step)) / 1000 : shifted(step);
              })),
              "precision.integer");
  }
  const Comparison both = of_times([](int, int step, int) { return 1000 * shifted(step); });
  EXPECT_EQ(first_cause(both), "timestep.scale");
  EXPECT_EQ(both.causes[0].explanation.find("alone"), std::string::npos);
}

TEST(SamplerTimes, OneItemOrSomeStepsAloneAreTold) {
  EXPECT_EQ(first_cause(of_times([](int, int step, int item) { return shifted(step) * (item == 1 ? 1000 : 1); })),
            "timestep.scale");
  EXPECT_EQ(first_cause(of_times([](int, int step, int) { return shifted(step) * (step == 2 ? 1000 : 1); })),
            "timestep.scale");
  EXPECT_EQ(first_cause(of_times([](int, int step, int) { return step > 2 ? step : shifted(step); })),
            "timestep.index_as_value");
}

// Even steps are a schedule of their own, whatever else n/n, (n-1)/n, .. may be called.
TEST(SamplerTimes, AnEvenScheduleIsNoIndex) {
  const Comparison even = of_times([](int, int step, int) { return 1 - step / 6.0; });
  EXPECT_EQ(first_cause(even), "scheduler.sigmas");
  EXPECT_NE(even.causes[0].explanation.find("even steps"), std::string::npos);
  EXPECT_EQ(first_cause(of_times([](int pass, int step, int) { return pass ? 1 - step / 6.0 : shifted(step); })),
            "scheduler.sigmas");
  // Counted down in whole numbers it is one.
  EXPECT_EQ(first_cause(of_times([](int, int step, int) { return 6 - step; })), "timestep.index_as_value");
  // A number of one step alone that is no rule's: nothing is said.
  EXPECT_EQ(first_cause(of_times([](int, int step, int) { return step == 3 ? 7.7 : shifted(step); })), "");
}

// What a model makes of the number, where the number itself was not recorded: cosines and sines in f32, as PyTorch
// does.
Values features_of(double t) {
  constexpr size_t kHalf = 128;
  Values out = make_values({1, 2 * kHalf});
  for (size_t i = 0; i < kHalf; ++i) {
    const float slower = std::exp(-std::log(10000.0f) * static_cast<float>(i) / kHalf);
    const float angle = 1000 * (static_cast<float>(t) * slower);
    out.v[i] = std::cos(angle), out.v[kHalf + i] = std::sin(angle);
  }
  return out;
}
std::string cause_of_features(const std::function<double(double)>& told) {
  RunMaker a, b;
  int step = 0;
  for (const double t : {1.0, 0.58242857, 0.02}) {
    a.add("net.time", {{1}, {static_cast<float>(t)}}, Role::kInput, step);
    a.add("net.time", features_of(t), Role::kOutput, step);
    b.add("net.time", features_of(told(t)), Role::kOutput, step++);
  }
  return first_cause(a, b);
}

TEST(SamplerTimes, ThousandsAreReadFromFeatures) {
  EXPECT_EQ(cause_of_features([](double t) { return t * 1000; }), "timestep.scale");
  EXPECT_EQ(cause_of_features([](double t) { return t / 1000; }), "timestep.scale");
  EXPECT_EQ(cause_of_features([](double t) { return 1 - t; }), "timestep.inverted");
}

// x' = x + dt v over five steps, with predictions that do not depend on x.
std::string cause_of_dt(const std::function<double(double sigma, double next)>& wrong) {
  const std::vector<double> sigmas{1, 0.94767, 0.88235, 0.69281, 0.37421, 0};
  RunMaker a, b;
  Values x = noise({1, 24, 16}, 3), y = x;
  for (RunMaker* run : {&a, &b}) run->add("initial_latents", x, Role::kCheckpoint);
  for (int i = 0; i < 5; ++i) {
    const Values v = noise({1, 24, 16}, 10 + static_cast<unsigned>(i));
    const double sigma = sigmas[static_cast<size_t>(i)], next = sigmas[static_cast<size_t>(i) + 1];
    const double right = next - sigma, mine = wrong(sigma, next);
    for (size_t e = 0; e < x.v.size(); ++e) {
      x.v[e] = static_cast<float>(x.v[e] + right * v.v[e]);
      y.v[e] = static_cast<float>(y.v[e] + mine * v.v[e]);
    }
    a.add("noise_pred", v, Role::kCheckpoint, i).add("latents", x, Role::kCheckpoint, i);
    b.add("noise_pred", v, Role::kCheckpoint, i).add("latents", y, Role::kCheckpoint, i);
  }
  const Comparison result = compared(a, b);
  return result.causes.empty() ? "" : std::string(result.causes[0].cause.id()) + ": " + result.causes[0].explanation;
}

TEST(SamplerTimes, DtOnAGrid) {
  const auto says = [](const std::string& text, const std::string& cause, const std::string& words) {
    return text.starts_with(cause + ":") && text.find(words) != std::string::npos;
  };
  const std::string rounded = cause_of_dt(
      [](double sigma, double next) { return (std::nearbyint(1000 * next) - std::nearbyint(1000 * sigma)) / 1000; });
  EXPECT_TRUE(says(rounded, "scheduler.dt", "rounded to whole timesteps")) << rounded;
  const std::string cut = cause_of_dt(
      [](double sigma, double next) { return (std::trunc(1000 * next) - std::trunc(1000 * sigma)) / 1000; });
  EXPECT_TRUE(says(cut, "scheduler.dt", "cut to whole timesteps")) << cut;
  const std::string hundredths =
      cause_of_dt([](double sigma, double next) { return std::trunc(100 * (next - sigma)) / 100; });
  EXPECT_TRUE(says(hundredths, "scheduler.dt", "dt is cut to whole 100ths")) << hundredths;
  const std::string coarse = cause_of_dt([](double sigma, double next) { return f16(next) - f16(sigma); });
  EXPECT_TRUE(says(coarse, "precision.f16", "")) << coarse;
  // A little longer everywhere is a factor and no grid.
  const std::string longer = cause_of_dt([](double sigma, double next) { return 1.01 * (next - sigma); });
  EXPECT_TRUE(says(longer, "scheduler.scale", "")) << longer;
}

}  // namespace
}  // namespace lockstep
