// Where a difference comes from: the vector behind a factor for each channel, the statistic behind a factor for each
// row, the call that was another module's, the order of two steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "compare/comparison.h"
#include "diagnose/search/number_formats.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

constexpr size_t kOriginWidth = 48;

std::vector<float> near_one(unsigned seed) {
  std::vector<float> out = noise({static_cast<int64_t>(kOriginWidth)}, seed, 0.3f).v;
  for (float& value : out) value = 1 + 0.5f * std::tanh(value);
  return out;
}

// [rows, channels] by a rule of the row: what its mean square is taken to be.
Values rms_normed(const Values& x, const std::vector<float>& weight,
                  const std::function<double(std::span<const float>)>& mean_square, double eps = 1e-6) {
  Values out = x;
  for (int64_t i = 0; i < x.rows(); ++i) {
    const double factor = 1 / std::sqrt(mean_square(x.row(i)) + eps);
    for (size_t j = 0; j < kOriginWidth; ++j) out.row(i)[j] = static_cast<float>(x.row(i)[j] * factor * weight[j]);
  }
  return out;
}

double mean_square(std::span<const float> row) {
  double sum = 0;
  for (const float x : row) sum += static_cast<double>(x) * x;
  return sum / static_cast<double>(row.size());
}

struct Norm {
  Values x = noise({1, 24, static_cast<int64_t>(kOriginWidth)}, 1);
  std::vector<float> weight = near_one(2);
  std::shared_ptr<MemoryWeights> weights = std::make_shared<MemoryWeights>();
  Norm() {
    for (int64_t i = 0; i < x.rows(); ++i)  // rows of different size: a statistic that were the same for all fits none
      for (float& value : x.row(i)) value *= 0.5f + 0.1f * static_cast<float>(i);
    weights->add("net.norm.weight", {{static_cast<int64_t>(kOriginWidth)}, weight});
  }
  std::string cause(const Values& wrong) const {
    RunMaker a, b;
    a.in("net.norm", x).add("net.norm", rms_normed(x, weight, mean_square));
    b.in("net.norm", x).add("net.norm", wrong);
    return first_cause(a, b, weights);
  }
  std::string cause(const std::function<double(std::span<const float>)>& statistic) const {
    return cause(rms_normed(x, weight, statistic));
  }
};

TEST(NormByRow, TheStatisticInAPoorerFormat) {
  const Norm norm;
  EXPECT_EQ(norm.cause([](std::span<const float> row) {
    double sum = 0;
    for (const float x : row) sum = bf16(sum + bf16(bf16(x) * bf16(x)));
    return bf16(sum / static_cast<double>(row.size()));
  }),
            "precision.bf16");
  EXPECT_EQ(norm.cause([](std::span<const float> row) {
    double sum = 0;
    for (const float x : row) sum += bf16(x) * bf16(x);
    return sum / static_cast<double>(row.size());
  }),
            "precision.bf16");
  EXPECT_EQ(norm.cause([](std::span<const float> row) {
    double sum = 0;
    for (const float x : row) sum += f16(static_cast<double>(x) * x);
    return sum / static_cast<double>(row.size());
  }),
            "precision.f16");
}

TEST(NormByRow, OtherCountsPartsAndFloors) {
  const Norm norm;
  EXPECT_EQ(norm.cause([](std::span<const float> row) { return mean_square(row) * 48 / 64; }), "norm.factor");
  EXPECT_EQ(norm.cause([](std::span<const float> row) { return mean_square(row.first(24)); }), "norm.axis");
  EXPECT_EQ(norm.cause([](std::span<const float> row) { return mean_square(row.last(12)); }), "norm.axis");
  EXPECT_EQ(norm.cause([](std::span<const float> row) { return std::max(2.0, mean_square(row)); }), "norm.eps");
  // No statistic of its row: the effect, and no guess.
  EXPECT_EQ(norm.cause([](std::span<const float> row) { return mean_square(row) * (1.5 + std::sin(100 * row[3])); }),
            "affine.row_scale");
}

TEST(NormByRow, GroupsOfChannelsOverAllTokens) {
  const Norm norm;
  Values wrong = norm.x;
  for (size_t group = 0; group < 6; ++group) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < 24; ++i)
      for (size_t j = 8 * group; j < 8 * group + 8; ++j) sum += norm.x.row(i)[j];
    for (int64_t i = 0; i < 24; ++i)
      for (size_t j = 8 * group; j < 8 * group + 8; ++j) squares += std::pow(norm.x.row(i)[j] - sum / 192, 2);
    for (int64_t i = 0; i < 24; ++i)
      for (size_t j = 8 * group; j < 8 * group + 8; ++j)
        wrong.row(i)[j] =
            static_cast<float>((norm.x.row(i)[j] - sum / 192) / std::sqrt(squares / 192 + 1e-6) * norm.weight[j]);
  }
  EXPECT_EQ(norm.cause(wrong), "norm.kind");
}

// A module that yours does not call: its result is only seen where it goes.
struct Skipped {
  Values x = noise({1, 24, static_cast<int64_t>(kOriginWidth)}, 1);
  std::vector<float> own = near_one(2), other = near_one(3);
  std::shared_ptr<MemoryWeights> weights = std::make_shared<MemoryWeights>();
  Skipped() {
    weights->add("net.layers.1.norm2.weight", {{static_cast<int64_t>(kOriginWidth)}, own});
    weights->add("net.layers.0.norm1.weight", {{static_cast<int64_t>(kOriginWidth)}, other});
  }
  Comparison compare(const Values& wrong, bool with_input) const {
    const Values right = rms_normed(x, own, mean_square);
    RunMaker a, b;
    a.in("net.layers.1", x);
    if (with_input) a.in("net.layers.1.norm2", x).add("net.layers.1.norm2", right);
    a.in("net.layers.1.mlp", right).add("net.layers.1.mlp", right).add("net.layers.1", right);
    b.in("net.layers.1", x).in("net.layers.1.mlp", wrong).add("net.layers.1.mlp", wrong).add("net.layers.1", wrong);
    for (RunMaker* maker : {&a, &b})
      for (RecordedTensor& record : maker->run.records) {
        double sum = 0;
        for (const float value : values_from(record.load()).v) sum = 0.7 * sum + value;
        record.checksum = std::to_string(sum);
      }
    return compared(a, b, weights);
  }
};

TEST(FactorOrigins, ARatioOfTwoWeightsIsAnotherNormsWeight) {
  const Skipped skipped;
  const Values wrong = rms_normed(noise({1, 24, 48}, 9), skipped.other, mean_square);
  // Only the result is known on either side: nothing but the factor of each channel tells it.
  const Comparison result = skipped.compare(rms_normed(skipped.x, skipped.other, mean_square), false);
  EXPECT_EQ(first_cause(result), "norm.other_weight");
  EXPECT_NE(result.causes[0].explanation.find("net.layers.0.norm1.weight / norm2.weight"), std::string::npos)
      << result.causes[0].explanation;
  EXPECT_EQ(first_cause(skipped.compare(wrong, false)), "");  // another input altogether: no guess
}

TEST(FactorOrigins, AFactorThatIsNoRatioStaysAFactor) {
  const Skipped skipped;
  EXPECT_EQ(first_cause(skipped.compare(rms_normed(skipped.x, near_one(77), mean_square), false)),
            "affine.channel_scale");
  std::vector<float> none(kOriginWidth, 1), more = skipped.own;
  for (float& value : more) value += 1;
  EXPECT_EQ(first_cause(skipped.compare(rms_normed(skipped.x, none, mean_square), false)), "norm.weight_missing");
  EXPECT_EQ(first_cause(skipped.compare(rms_normed(skipped.x, more, mean_square), false)), "norm.one_plus_weight");
}

TEST(FactorOrigins, ANormThatWasWrittenOutIsAskedAsWhatMadeTheTensor) {
  const Skipped skipped;
  const auto with_eps = [&](double eps) { return rms_normed(skipped.x, skipped.own, mean_square, eps); };
  EXPECT_EQ(first_cause(skipped.compare(with_eps(0.05), true)), "norm.eps");
  EXPECT_EQ(first_cause(skipped.compare(skipped.x, true)), "norm.missing");
}

// y = x (1 + scale) + shift with [shift, scale, gate] twice, read otherwise.
struct Modulation {
  Values x = noise({1, 20, static_cast<int64_t>(kOriginWidth)}, 1),
         parts = noise({1, 6 * static_cast<int64_t>(kOriginWidth)}, 2, 0.3f);
  using Read = std::function<float(size_t part, size_t channel)>;
  Comparison compare(const Read& read) const {
    const auto made = [&](const Read& from) {
      Values out = x;
      for (int64_t i = 0; i < x.rows(); ++i)
        for (size_t j = 0; j < kOriginWidth; ++j) out.row(i)[j] = x.row(i)[j] * (1 + from(1, j)) + from(0, j);
      return out;
    };
    const Values right = made([&](size_t part, size_t j) { return parts.v[part * kOriginWidth + j]; }),
                 wrong = made(read);
    RunMaker a, b;
    a.add("net.mod", parts).add("net.norm", x).in("net.attn", right).add("net.attn", right);
    b.add("net.mod", parts).add("net.norm", x).in("net.attn", wrong).add("net.attn", wrong);
    return compared(a, b);
  }
  float at(size_t i) const { return parts.v[i % parts.v.size()]; }
};

TEST(FactorOrigins, PartsOfAModulationReadAlongAnotherAxis) {
  const Modulation m;
  const auto cause = [&](const Modulation::Read& read) { return first_cause(m.compare(read)); };
  const Comparison innermost = m.compare([&](size_t part, size_t j) { return m.at(6 * j + part); });
  EXPECT_EQ(first_cause(innermost), "modulate.other_part");
  EXPECT_NE(innermost.causes[0].explanation.find("every 6th element of mod"), std::string::npos)
      << innermost.causes[0].explanation;
  EXPECT_EQ(cause([&](size_t part, size_t j) { return m.at(3 * j + part); }), "modulate.other_part");
  EXPECT_EQ(cause([&](size_t part, size_t j) { return m.at(j / 12 * 72 + part * 12 + j % 12); }),
            "modulate.other_part");  // four heads of 12
  EXPECT_EQ(cause([&](size_t part, size_t j) { return m.at(part * kOriginWidth + j + 287); }), "modulate.other_part");
  EXPECT_EQ(cause([&](size_t part, size_t j) { return m.at(part * kOriginWidth + (j + 5) % kOriginWidth); }),
            "modulate.other_part");
  EXPECT_EQ(cause([&](size_t part, size_t j) { return std::clamp(m.at(part * kOriginWidth + j), -0.2f, 0.2f); }),
            "modulate.form");
  const Values elsewhere = noise({96}, 8, 0.3f);
  EXPECT_EQ(cause([&](size_t part, size_t j) { return elsewhere.v[part * kOriginWidth + j]; }),
            "affine.channel_scale_offset");
}

// The norm before it was not recorded: only what the modulation gave is known.
TEST(FactorOrigins, ShiftAndScaleExchangedBehindANormThatIsNotThere) {
  constexpr int64_t kTokens = 24;
  const Values normal = noise({kTokens, 32}, 1), vector = noise({1, 64}, 2, 0.4f);
  const auto modulated = [&](size_t scale, size_t shift) {
    Values out = normal;
    for (int64_t t = 0; t < kTokens; ++t)
      for (size_t c = 0; c < 32; ++c)
        out.row(t)[c] = normal.row(t)[c] * (1 + vector.v[scale * 32 + c]) + vector.v[shift * 32 + c];
    return out;
  };
  RunMaker a, b;
  a.add("net.vector", vector).in("net.out", modulated(0, 1)).add("net.out", modulated(0, 1));
  b.add("net.vector", vector).in("net.out", modulated(1, 0)).add("net.out", modulated(1, 0));
  EXPECT_EQ(first_cause(a, b), "modulate.shift_scale_exchanged");
}

// One vector a step: a single step fits anything.
TEST(Conditioning, TheSameVectorInAllSteps) {
  const auto cause = [](const std::function<double(double value, size_t channel, int step)>& change) {
    RunMaker a, b;
    for (int step = 0; step < 4; ++step) {
      const Values y = noise({1, 40}, 10 + static_cast<unsigned>(step));
      Values wrong = y;
      for (size_t j = 0; j < wrong.v.size(); ++j) wrong.v[j] = static_cast<float>(change(y.v[j], j, step));
      a.add("net.embed", y, Role::kOutput, step).add("net.out", y, Role::kOutput, step);
      b.add("net.embed", wrong, Role::kOutput, step).add("net.out", wrong, Role::kOutput, step);
    }
    return first_cause(a, b);
  };
  const Values v = noise({40}, 3);
  EXPECT_EQ(cause([&](double y, size_t j, int) { return y + v.v[j]; }), "affine.channel_offset");
  EXPECT_EQ(cause([&](double y, size_t j, int) { return y * (2 + v.v[j]); }), "affine.channel_scale");
  EXPECT_EQ(cause([&](double y, size_t j, int step) { return y + v.v[j] * (step + 1) * (step % 2 ? 0.3 : 1); }), "");
}

TEST(Conditioning, TokensPooledInItsPlaceOrAddedToIt) {
  const Values text = noise({1, 12, 40}, 1), time = noise({1, 40}, 2);
  Values mean = time;
  for (size_t j = 0; j < 40; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < 12; ++i) sum += text.row(i)[j];
    mean.v[j] = static_cast<float>(sum / 12);
  }
  Values added = mean;
  for (size_t j = 0; j < 40; ++j) added.v[j] += time.v[j];
  const auto cause = [&](const Values& wrong) {
    RunMaker a, b;
    a.add("net.text", text).add("net.time", time).in("net.mod", time).add("net.mod", time);
    b.add("net.text", text).add("net.time", time).in("net.mod", wrong).add("net.mod", wrong);
    return first_cause(a, b);
  };
  EXPECT_EQ(cause(mean), "stage.replaced");
  EXPECT_EQ(cause(added), "residual.added");
}

// norm, then activation; yours the other way round, and each under its own name.
TEST(Order, TwoStepsChangePlaces) {
  const Norm norm;
  const Values right = rms_normed(norm.x, norm.weight, mean_square), active = mapped(norm.x, silu);
  const Values wrong = rms_normed(active, norm.weight, mean_square);
  RunMaker a, b;
  a.in("net.block", norm.x).in("net.block.norm", norm.x).add("net.block.norm", right);
  a.in("net.block.act", right).add("net.block.act", mapped(right, silu)).add("net.block", mapped(right, silu));
  b.in("net.block", norm.x).in("net.block.act", norm.x).add("net.block.act", active);
  b.in("net.block.norm", active).add("net.block.norm", wrong).add("net.block", wrong);
  const Comparison result = compared(a, b, norm.weights);
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(result.first->stage, "net.block.act");
  EXPECT_EQ(first_cause(result), "stage.replaced");
}

// The stream goes on without what a branch made for it, or the branch without the stream.
TEST(Residual, BranchAndStreamAreToldApart) {
  const Values x = noise({1, 24, 48}, 1), f = noise({1, 24, 48}, 2);
  Values y = x;
  for (size_t i = 0; i < y.v.size(); ++i) y.v[i] += f.v[i];
  const auto cause = [&](const Values& wrong) {
    RunMaker a, b;
    a.in("net.block", x).add("net.block.attn", f).in("net.block.norm", y).add("net.block.norm", y);
    b.in("net.block", x).add("net.block.attn", f).in("net.block.norm", wrong).add("net.block.norm", wrong);
    return first_cause(a, b);
  };
  EXPECT_EQ(cause(x), "residual.branch_missing");
  EXPECT_EQ(cause(f), "residual.missing");
}

// A block makes its stream, and the next is given what went into the block: no sum of what the block made says that.
TEST(Residual, TheStreamOfABlockIsNotPassedOn) {
  const Values x = noise({1, 12, 16}, 1), f = noise({1, 12, 16}, 2), g = noise({1, 12, 16}, 3);
  const auto sum = [](Values a, const Values& b) {
    for (size_t i = 0; i < a.v.size(); ++i) a.v[i] += b.v[i];
    return a;
  };
  const auto run = [&](const Values& given) {
    RunMaker out;
    out.in("net.0.norm1", x).add("net.0.norm1", mapped(x, silu));
    for (unsigned i = 0; i < 6; ++i)  // so that what went into the block is far away
      out.add("net.0.attn." + std::to_string(i), noise({1, 12, 16}, 10 + i));
    out.add("net.0.attn", f);
    out.in("net.0.norm2", sum(x, f)).add("net.0.norm2", mapped(sum(x, f), silu)).add("net.0.mlp", g);
    out.add("net.0", sum(sum(x, f), g)).in("net.1.norm1", given).add("net.1.norm1", mapped(given, silu));
    return out;
  };
  EXPECT_EQ(first_cause(run(sum(sum(x, f), g)), run(x)), "stage.replaced");
}

TEST(TimeFeatures, AnyLawOfTheFrequencies) {
  const auto features = [](double (*slower)(double i)) {
    Values out = make_values({1, 256});
    for (size_t i = 0; i < 128; ++i) {
      const double angle = 1000 * 0.85 * slower(static_cast<double>(i));
      out.v[i] = static_cast<float>(std::cos(angle)), out.v[i + 128] = static_cast<float>(std::sin(angle));
    }
    return out;
  };
  const Values time{{1}, {0.85f}}, right = features([](double i) { return std::pow(1e4, -i / 128); });
  const auto cause = [&](const Values& wrong) {
    RunMaker a, b;
    a.in("net.time", time).add("net.time", right), b.in("net.time", time).add("net.time", wrong);
    return first_cause(a, b);
  };
  EXPECT_EQ(cause(features([](double i) { return std::pow(1e4, -i / 127); })), "timestep.theta");
  EXPECT_EQ(cause(features([](double i) { return std::pow(16.0, -i / 128); })), "timestep.theta");
  EXPECT_EQ(cause(features([](double i) { return std::pow(1e4, -(i + 1) / 128); })), "timestep.factor");
  EXPECT_EQ(cause(features([](double i) { return std::fabs(std::sin(i + 1)); })), "timestep.theta");  // some other law
  EXPECT_EQ(cause(noise({1, 256}, 5)), "");
}

// Features that were kept from the first step are a factor of the time too, by chance a round one.
TEST(TimeFeatures, OfTheFirstStepAtEveryStep) {
  const auto features = [](double t) {
    Values out = make_values({1, 256});
    for (size_t i = 0; i < 128; ++i) {
      const double angle = 1000 * t * std::pow(1e4, -static_cast<double>(i) / 128);
      out.v[i] = static_cast<float>(std::cos(angle)), out.v[i + 128] = static_cast<float>(std::sin(angle));
    }
    return out;
  };
  RunMaker a, b;
  int step = 0;
  for (const double t : {1.0, 0.7, 0.5}) {
    const Values time{{1}, {static_cast<float>(t)}};
    for (RunMaker* run : {&a, &b}) run->add("net.time", time, Role::kInput, step);
    a.add("net.time", features(static_cast<float>(t)), Role::kOutput, step);
    b.add("net.time", features(1), Role::kOutput, step);
    a.add("net", mapped(features(static_cast<float>(t)), silu), Role::kOutput, step);
    b.add("net", mapped(features(1), silu), Role::kOutput, step);
    ++step;
  }
  EXPECT_EQ(first_cause(a, b), "capture.other_hit");
}

// y = x W^T with the weight's columns scaled.
TEST(LinearColumns, AFactorForEachInput) {
  const Values x = noise({1, 30, 64}, 1), w = noise({80, 64}, 2);
  auto weights = std::make_shared<MemoryWeights>();
  weights->add("net.layers.0.proj.weight", w);
  weights->add("net.layers.0.norm.weight", noise({64}, 5));
  const auto made = [&](const std::function<double(size_t)>& factor) {
    Values out = make_values({1, 30, 80});
    for (int64_t i = 0; i < 30; ++i)
      for (int64_t j = 0; j < 80; ++j) {
        double sum = 0;
        for (size_t k = 0; k < 64; ++k) sum += factor(k) * x.row(i)[k] * w.row(j)[k];
        out.row(i)[static_cast<size_t>(j)] = static_cast<float>(sum);
      }
    return out;
  };
  const auto cause = [&](const std::function<double(size_t)>& factor) {
    RunMaker a, b;
    const Values right = made([](size_t) { return 1.0; });
    a.in("net.layers.0.proj", x).add("net.layers.0.proj", right);
    b.in("net.layers.0.proj", x).add("net.layers.0.proj", made(factor));
    return first_cause(a, b, weights);
  };
  EXPECT_EQ(cause([](size_t k) { return 1 + 0.01 * static_cast<double>(k * k % 50); }), "linear.weight_scaled");
  const std::vector<float> norm = weights->find("net.layers.0.norm.weight")->v;
  EXPECT_EQ(cause([&](size_t k) { return static_cast<double>(norm[k]); }), "norm.weight_use");
}

TEST(NumberFormats, TheFirstThatFits) {
  EXPECT_EQ(first_fitting(number_formats(), [](const NumberFormat&) { return false; }), nullptr);
  const Format found =
      first_fitting(number_formats(), [](const NumberFormat& format) { return format.relative > 0.01; });
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->cause.id(), "precision.f8_e4m3");
  const Values rounded = in_format(Values{{2}, {1.001f, 3.0f}}, &half_formats()[0]);
  EXPECT_EQ(rounded.v, (std::vector<float>{1.0f, 3.0f}));
}

}  // namespace
}  // namespace lockstep
