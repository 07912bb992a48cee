// Positions, timesteps and attentions of two streams on runs made here: faults of one axis, one stream, one rounding.
#include <gtest/gtest.h>

#include <cmath>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

// A complex table over a grid: 4 columns for the row, 6 for the column of each token, both counted from the middle.
struct Grid {
  int64_t rows = 7, columns = 4;
  double row_step = 1, row_start = 0;
  bool down = false;                       // walked column by column
  int64_t negative_on = 0, column_on = 0;  // rows before the middle, the last column: so many places further on
  double theta = 1e4;
  Values table() const {
    Values out = make_values({rows * columns, 10, 2});
    for (int64_t t = 0; t < rows * columns; ++t)
      for (int64_t i = 0; i < 10; ++i) {
        const int64_t y = down ? t % rows : t / columns, x = down ? t / rows : t % columns;
        const double position =
            i < 4 ? row_step * static_cast<double>(y - rows / 2 + (y < rows / 2 ? negative_on : 0)) + row_start
                  : static_cast<double>(x - columns / 2 + (x + 1 == columns ? column_on : 0));
        const double angle = position * (i < 4 ? std::pow(theta, -static_cast<double>(i) / 4)
                                               : std::pow(theta, -static_cast<double>(i - 4) / 6));
        out.v[static_cast<size_t>((t * 10 + i) * 2)] = static_cast<float>(std::cos(angle));
        out.v[static_cast<size_t>((t * 10 + i) * 2 + 1)] = static_cast<float>(std::sin(angle));
      }
    return out;
  }
};

std::string cause_of_table(const Grid& candidate) {
  RunMaker a, b;
  a.add("net.pos_embed", Grid{.theta = candidate.theta}.table());
  b.add("net.pos_embed", candidate.table());
  return first_cause(a, b);
}

TEST(RotaryPositions, AreReadBackFromTheAngles) {
  EXPECT_EQ(cause_of_table({.rows = 4, .columns = 7}), "rotary.axes_exchanged");
  EXPECT_EQ(cause_of_table({.row_start = 1}), "rotary.offset");
  EXPECT_EQ(cause_of_table({.row_step = 2}), "rotary.factor");
  EXPECT_EQ(cause_of_table({.row_step = -1, .row_start = 2}), "rotary.sign");
}

TEST(RotaryPositions, APartOfAnAxisFarAway) {
  // With frequencies of no common measure even the slowest column has gone round.
  for (const double theta : {1e4, 500.0}) {
    EXPECT_EQ(cause_of_table({.negative_on = 4096, .theta = theta}), "rotary.positions");
    EXPECT_EQ(cause_of_table({.negative_on = 100000, .theta = theta}), "rotary.positions");
    EXPECT_EQ(cause_of_table({.column_on = 1024, .theta = theta}), "rotary.positions");
  }
  // Angles that belong to no place.
  RunMaker a;
  a.add("net.pos_embed", Grid().table());
  Values other = Grid().table();
  const Values e = noise({28, 10}, 3);
  for (size_t i = 0; i < 140; ++i) other.v[2 * i] = std::cos(e.v[i]), other.v[2 * i + 1] = std::sin(e.v[i]);
  RunMaker c;
  c.add("net.pos_embed", other);
  EXPECT_NE(first_cause(a, c), "rotary.positions");
}

TEST(RotaryPositions, ATensorRecordedAfterItsRotation) {
  const Values table = Grid().table(), x = noise({1, 28, 2, 20}, 5);
  const auto turned = [&](int sign, bool halves) {
    Values out = x;
    for (int64_t run = 0; run < 56; ++run)
      for (int64_t i = 0; i < 10; ++i) {
        const size_t at = static_cast<size_t>((run / 2 * 10 + i) * 2), row = static_cast<size_t>(run * 20);
        const size_t a = row + static_cast<size_t>(halves ? i : 2 * i),
                     b = row + static_cast<size_t>(halves ? i + 10 : 2 * i + 1);
        const float c = table.v[at], s = static_cast<float>(sign) * table.v[at + 1];
        out.v[a] = x.v[a] * c - x.v[b] * s, out.v[b] = x.v[a] * s + x.v[b] * c;
      }
    return out;
  };
  const auto run_of = [&](const Values& y) {
    RunMaker out;
    out.add("net.pos_embed", table).add("net.to_q", x).add("net.rotated", y, Role::kCheckpoint);
    return out;
  };
  const RunMaker right = run_of(turned(1, false));
  EXPECT_EQ(first_cause(right, run_of(turned(-1, false))), "rotary.sign");
  EXPECT_EQ(first_cause(right, run_of(turned(1, true))), "rotary.style");
  EXPECT_EQ(first_cause(right, run_of(x)), "rotary.missing");
  // Nothing shows what it was made from.
  const auto alone = [&](const Values& y) {
    RunMaker out;
    out.add("net.pos_embed", table).add("net.norm_k", y);
    return out;
  };
  EXPECT_EQ(first_cause(alone(x), alone(turned(1, false))), "rotary.added");
  EXPECT_EQ(first_cause(alone(x), alone(turned(1, true))), "rotary.added");
  EXPECT_EQ(first_cause(alone(turned(1, false)), alone(x)), "rotary.missing");
  EXPECT_FALSE(first_cause(alone(x), alone(noise({1, 28, 2, 20}, 6))).starts_with("rotary"));
}

std::string cause_of_timestep(double (*wrong)(double),
                              const std::vector<double>& steps = {1000.0, 873.217, 655.402, 310.96}) {
  RunMaker a, b;
  int step = 0;
  for (const double t : steps) {
    a.add("net.timestep", {{1}, {static_cast<float>(t / 1000)}}, Role::kInput, step);
    b.add("net.timestep", {{1}, {static_cast<float>(wrong(t))}}, Role::kInput, step++);
  }
  return first_cause(a, b);
}

TEST(Timestep, AllStepsTogetherTellARoundingFromAFactor) {
  EXPECT_EQ(cause_of_timestep([](double t) { return std::trunc(t) / 1000; }), "precision.integer");
  EXPECT_EQ(cause_of_timestep([](double t) { return std::round(t) / 1000; }), "precision.integer");
  EXPECT_EQ(cause_of_timestep([](double t) { return t / 999; }), "timestep.scale");
  EXPECT_EQ(cause_of_timestep([](double t) { return t / 1e6; }), "timestep.scale");
  EXPECT_EQ(cause_of_timestep(
                [](double t) { return static_cast<double>(float_from(bfloat16_from(static_cast<float>(t)))) / 1000; }),
            "precision.bf16");
}

TEST(Timestep, OneLessIsNoWholeNumberThatWasCut) {
  const std::vector<double> whole{1000, 750, 500, 250};
  EXPECT_EQ(cause_of_timestep([](double t) { return (t - 1) / 1000; }, whole), "timestep.offset");
  EXPECT_EQ(cause_of_timestep([](double t) { return (t + 1) / 1000; }, whole), "timestep.offset");
  EXPECT_EQ(cause_of_timestep([](double t) { return (t - 1) / 1000; }), "timestep.offset");
}

// Two streams of 5 and 9 tokens, two heads of 8.
struct Joint {
  Values text_q = noise({1, 5, 16}, 1), text_k = noise({1, 5, 16}, 2), text_v = noise({1, 5, 16}, 3);
  Values q = noise({1, 9, 16}, 4), k = noise({1, 9, 16}, 5), v = noise({1, 9, 16}, 6);
  Values normed = mapped(text_k, [](double x) { return x / (1 + std::fabs(x)); });  // what stands for a norm

  Values attend(const Values& with_text_k, const Values& with_text_v) const {
    Values out = make_values({1, 9, 16});
    for (int64_t row = 0; row < 9; ++row)
      for (int64_t h = 0; h < 2; ++h) {
        std::vector<double> weights;
        double total = 0;
        for (int64_t t = 0; t < 14; ++t) {
          const Values& keys = t < 5 ? with_text_k : k;
          double sum = 0;
          for (size_t j = 0; j < 8; ++j)
            sum += static_cast<double>(q.row(row)[static_cast<size_t>(h) * 8 + j]) *
                   keys.row(t < 5 ? t : t - 5)[static_cast<size_t>(h) * 8 + j];
          weights.push_back(std::exp(sum / std::sqrt(8.0))), total += weights.back();
        }
        for (size_t j = 0; j < 8; ++j) {
          double sum = 0;
          for (int64_t t = 0; t < 14; ++t)
            sum += weights[static_cast<size_t>(t)] *
                   (t < 5 ? with_text_v.row(t) : v.row(t - 5))[static_cast<size_t>(h) * 8 + j];
          out.row(row)[static_cast<size_t>(h) * 8 + j] = static_cast<float>(sum / total);
        }
      }
    return out;
  }
  RunMaker run(const Values& attended, bool calls_norm) const {
    RunMaker out;
    out.add("net.attn.to_q", q).add("net.attn.to_k", k).add("net.attn.to_v", v);
    out.add("net.attn.add_q_proj", text_q).add("net.attn.add_k_proj", text_k).add("net.attn.add_v_proj", text_v);
    if (calls_norm) out.add("net.attn.norm_added_k", reshaped(normed, {1, 5, 2, 8}));
    out.in("net.attn.to_out", attended).add("net.attn.to_out", attended);
    return out;
  }
};

TEST(AttentionOfTwoStreams, OneStreamAloneIsWrong) {
  const Joint joint;
  const RunMaker right = joint.run(joint.attend(joint.normed, joint.text_v), true);
  const auto times = [](const Values& x, double factor) {
    return mapped(x, [factor](double v) { return factor * v; });
  };
  EXPECT_EQ(first_cause(right, joint.run(joint.attend(joint.text_k, joint.text_v), false)), "attention.norm_missing");
  EXPECT_EQ(first_cause(right, joint.run(joint.attend(times(joint.normed, 0.61), joint.text_v), true)),
            "attention.scale");
  EXPECT_EQ(first_cause(right, joint.run(joint.attend(joint.normed, times(joint.text_v, -1)), true)),
            "attention.scale");
}

TEST(Affine, BetweenBoundsThatBothRunInto) {
  const Values picture =
      mapped(noise({40, 30, 3}, 8), [](double x) { return std::round(std::clamp(128 + 70 * x, 0.0, 255.0)); });
  const Values other = mapped(picture, [](double x) { return std::round(std::clamp(x - 60, 0.0, 255.0)); });
  RunMaker a, b;
  a.add("image", picture, Role::kCheckpoint), b.add("image", other, Role::kCheckpoint);
  EXPECT_EQ(first_cause(a, b), "affine.offset");
}

}  // namespace
}  // namespace lockstep
