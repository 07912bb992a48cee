// Pairs that are the same tensor in another form, or of which little was kept: recognised by content and said, never
// silently forgiven.
#include <gtest/gtest.h>

#include <cmath>

#include "compare/comparison.h"
#include "compare/range_cards.h"
#include "measure/statistics_error.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

std::string all_notes(const Comparison& result) {
  std::string out;
  for (const std::string& note : result.notes) out += note + "\n";
  return out;
}

TEST(Recognition, SwappedGuidanceHalvesOfOneBatch) {
  RunMaker a, b;
  const Values x = noise({2, 12, 16}, 1);
  Values swapped = x;
  std::rotate(swapped.v.begin(), swapped.v.begin() + x.size() / 2, swapped.v.end());
  a.add("transformer.proj_out", x), b.add("transformer.proj_out", swapped);
  const Comparison result = compared(a, b);
  EXPECT_EQ(result.verdict, "mismatch");
  ASSERT_FALSE(result.causes.empty());
  EXPECT_EQ(result.causes[0].cause.id(), "layout.reversed");
  EXPECT_NE(result.causes[0].explanation.find("the two batch items exchanged"), std::string::npos)
      << result.causes[0].explanation;
}

TEST(Recognition, SwappedGuidancePassesByTag) {
  RunMaker a, b;
  const Values cond = noise({1, 12, 16}, 1), uncond = noise({1, 12, 16}, 2);
  a.add("noise_pred", cond, Role::kCheckpoint, 0, {{"pass", "cond"}})
      .add("noise_pred", uncond, Role::kCheckpoint, 0, {{"pass", "uncond"}});
  b.add("noise_pred", uncond, Role::kCheckpoint, 0, {{"pass", "cond"}})
      .add("noise_pred", cond, Role::kCheckpoint, 0, {{"pass", "uncond"}});
  const Comparison result = compared(a, b);
  EXPECT_EQ(result.verdict, "mismatch");
  ASSERT_FALSE(result.causes.empty());
  EXPECT_EQ(result.causes[0].cause.id(), "capture.other_hit");
  EXPECT_NE(result.causes[0].explanation.find("uncond"), std::string::npos) << result.causes[0].explanation;
}

TEST(Recognition, PackedAgainstUnpackedLatents) {
  RunMaker a, b;
  const Values x = noise({1, 4, 6, 4}, 2);
  const Values packed = reshaped(permuted(reshaped(x, {4, 3, 2, 2, 2}), {1, 3, 0, 2, 4}), {1, 6, 16});
  a.add("latents", x, Role::kCheckpoint), b.add("latents", packed, Role::kCheckpoint);
  const Comparison result = compared(a, b);
  EXPECT_EQ(result.results[0].state, PairState::kLayout);
  EXPECT_NE(all_notes(result).find("recognised by content"), std::string::npos) << all_notes(result);
  b.run.records[0].load = [packed] {
    Values other = packed;
    other.v[5] += 0.5f;  // one wrong value is not forgiven with the layout
    return Tensor::from<float>(other.shape, other.v);
  };
  EXPECT_EQ(compared(a, b).verdict, "mismatch");
}

TEST(Recognition, PackedLatentsThatDifferAreStillLatents) {
  RunMaker a, b;
  const Values x = noise({1, 4, 6, 4}, 2);
  Values packed = reshaped(permuted(reshaped(x, {4, 3, 2, 2, 2}), {1, 3, 0, 2, 4}), {1, 6, 16});
  for (float& value : packed.v) value *= 0.8f;  // a step of another size
  a.add("latents", packed, Role::kCheckpoint), b.add("latents", x, Role::kCheckpoint);
  const Comparison result = compared(a, b);
  EXPECT_EQ(result.verdict, "mismatch");
  EXPECT_EQ(result.results[0].state, PairState::kBad);
  EXPECT_NEAR(result.results[0].error.relative, 0.25, 1e-4);
  const Values other = noise({1, 4, 6, 4}, 3);  // has nothing in common with it, in any order
  b.run.records[0].load = [other] { return Tensor::from<float>(other.shape, other.v); };
  EXPECT_EQ(compared(a, b).results[0].state, PairState::kIncomparable);
}

// An eps ten times too large, where that is less than rounding may do: given the very same numbers, it is a mistake.
TEST(Recognition, ASmallMistakeOnTheVerySameInputs) {
  const auto normed = [](const Values& x, double eps) {
    Values out = x;
    for (int64_t row = 0; row < x.rows(); ++row) {
      double squares = 0;
      for (const float value : x.row(row)) squares += static_cast<double>(value) * value;
      const double by = 1 / std::sqrt(squares / static_cast<double>(x.last()) + eps);
      for (float& value : out.row(row)) value = static_cast<float>(by * value);
    }
    return out;
  };
  Values x = noise({24, 64}, 5);
  for (float& value : x.v) value *= 3;
  RunMaker a, b, c;
  a.in("net.norm", x).add("net.norm", normed(x, 1e-6));
  b.in("net.norm", x).add("net.norm", normed(x, 1e-5));
  const Comparison result = compared(a, b);
  EXPECT_LT(result.results.back().in_floors, 6);  // no more than noise by its size
  EXPECT_EQ(result.verdict, "mismatch");
  ASSERT_FALSE(result.causes.empty());
  EXPECT_EQ(result.causes[0].cause.id(), "norm.eps");
  // Rounding of the same size is none.
  c.in("net.norm", x).add("net.norm", with_rounding(normed(x, 1e-6), 9, 5e-7f));
  EXPECT_EQ(compared(a, c).verdict, "match");
}

TEST(Recognition, ChannelsLastAgainstChannelsFirst) {
  RunMaker a, b;
  const Values x = noise({1, 8, 6, 5}, 3);
  a.add("vae.decoder.conv_in", x), b.add("vae.decoder.conv_in", permuted(x, {0, 2, 3, 1}));
  const Comparison result = compared(a, b);
  EXPECT_EQ(result.results[0].state, PairState::kLayout);
  EXPECT_NE(all_notes(result).find("recognised by content"), std::string::npos) << all_notes(result);
}

// A sequence with its channels last, and heads before tokens, are compared where their values differ too.
TEST(Recognition, LayoutsOfTensorsThatDiffer) {
  const auto result = [](const Values& theirs, const Values& own) {
    RunMaker a, b;
    a.add("net.layer", theirs), b.add("net.layer", own);
    return compared(a, b).results[0];
  };
  const PairResult last = result(noise({1, 8, 6}, 3), noise({1, 6, 8}, 4));
  EXPECT_EQ(last.state, PairState::kBad);
  EXPECT_NE(last.note.find("by its sizes alone"), std::string::npos) << last.note;
  // Two axes may be a matrix that is transposed by mistake.
  EXPECT_EQ(result(noise({8, 6}, 3), noise({6, 8}, 4)).state, PairState::kIncomparable);
  const Values heads = noise({2, 4, 6, 2}, 5);
  const auto joined = [&](float by) {
    return mapped(reshaped(permuted(heads, {0, 2, 1, 3}), {2, 6, 8}), [=](double v) { return v + by; });
  };
  EXPECT_EQ(result(joined(0.3f), heads).state, PairState::kBad);
  EXPECT_EQ(result(noise({2, 6, 8}, 6), heads).state, PairState::kIncomparable);
}

// Kernels lie in memory as their framework wants them: that is no mistake of the layer that computes something else.
TEST(Recognition, AKernelOfAnotherFrameworkIsNoRearrangedWeight) {
  const auto header = [](const Shape& kernel, const char* checksum) {
    Json out = Json::object();
    const auto add = [&](const char* module, const Shape& shape, const char* sum) {
      out["modules"][module]["weights"]["weight"] = {{"shape", shape}, {"rms", 1.5}, {"mean", 0.1},
                                                     {"min", -3.0},    {"max", 3.5}, {"checksum", sum}};
    };
    add("net.conv", kernel, checksum);
    for (const char* module : {"net.one", "net.two", "net.three"}) add(module, {4, 4}, module);
    return out;
  };
  for (const bool other_shape : {true, false}) {
    RunMaker a, b;
    a.add("net.conv", noise({1, 8, 6}, 3)), b.add("net.conv", noise({1, 8, 6}, 4));
    a.run.header = header({8, 5, 3}, "abc"),
    b.run.header = header(other_shape ? Shape{8, 3, 5} : Shape{8, 5, 3}, "def");
    EXPECT_EQ(first_cause(compared(a, b)) == "weights.rearranged", !other_shape);
  }
}

TEST(Recognition, LeadingAxesOfOne) {
  RunMaker a, b;
  const Values x = noise({1, 8, 6}, 3);
  a.add("net.m", x), b.add("net.m", reshaped(x, {8, 6}));
  const Comparison result = compared(a, b);
  EXPECT_EQ(result.verdict, "match");
  EXPECT_EQ(result.results[0].state, PairState::kLayout);
  EXPECT_NE(all_notes(result).find("axes of 1 differ"), std::string::npos) << all_notes(result);
}

// parent: a and b are right, what the parent makes of them for c is not.
TEST(Recognition, GlueNamesParentGoodTensorsAndTheLine) {
  const auto run = [](double factor) {
    RunMaker maker;
    const Values x = noise({1, 12, 16}, 1), f = noise({1, 12, 16}, 2);
    Values y = x;
    for (size_t i = 0; i < y.v.size(); ++i) y.v[i] = static_cast<float>(x.v[i] + factor * f.v[i]);
    maker.in("net.block", x)
        .add("net.block.attn", f)
        .in("net.block.norm", y)
        .add("net.block.norm", y)
        .add("net.block", y);
    for (RecordedTensor& record : maker.run.records) record.where = "model.py:40 forward";
    return maker;
  };
  const Comparison result = compared(run(1), run(-1));
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(result.first->kind, "glue");
  EXPECT_EQ(result.first->parent, "net.block");
  EXPECT_EQ(result.first->stage, "net.block.norm");
  EXPECT_NE(std::find(result.first->good_inputs.begin(), result.first->good_inputs.end(), "net.block.attn"),
            result.first->good_inputs.end());
  ASSERT_FALSE(result.causes.empty());
  EXPECT_EQ(result.causes[0].cause.id(), "residual.sign");
  const std::string page = text_from(result, run(1).run, run(-1).run, false, false).string();
  EXPECT_NE(page.find("model.py:40"), std::string::npos) << page;
}

TEST(Recognition, StatisticsAloneShowADifferenceAndWhatToRecord) {
  const auto run = [](double factor) {
    RunMaker maker;
    const Values x = noise({1, 12, 16}, 1);
    const Values y = mapped(x, [factor](double v) { return factor * v; });
    maker.in("net.block.proj", x).add("net.block.proj", y).add("net.block", y);
    for (RecordedTensor& record : maker.run.records)
      record.stats = tensor_statistics(record.load()), record.load = nullptr;
    return maker;
  };
  const Comparison same = compared(run(1), run(1));
  EXPECT_EQ(same.verdict, "nothing_compared");
  const Comparison result = compared(run(1), run(2));
  EXPECT_EQ(result.verdict, "mismatch");
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(result.first->stage, "net.block.proj");
  EXPECT_NE(result.first->hint.find("lockstep record --inputs --full 'net.block.proj'"), std::string::npos)
      << result.first->hint;
}

TEST(Recognition, StatisticsGiveALowerBound) {
  const Values x = noise({40, 30}, 1), y = noise({40, 30}, 2);
  const auto statistics = [](const Values& v) { return tensor_statistics(Tensor::from<float>(v.shape, v.v)); };
  EXPECT_LE(least_error(statistics(y), statistics(x)), relative_error(y.v, x.v));
  EXPECT_EQ(least_error(statistics(x), statistics(x)), 0);
  Values nan = x;
  nan.v[3] = NAN;
  EXPECT_TRUE(std::isinf(least_error(statistics(nan), statistics(x))));
}

TEST(RangeCards, TensOfMillionsBeforeTheLastNormAreNormal) {
  EXPECT_EQ(range_alarm("transformer.norm_out", 4e7), "");
  EXPECT_EQ(range_alarm("transformer.transformer_blocks.59", 4e7), "");
  EXPECT_EQ(range_alarm("text_encoder.model.layers.20", 1e4), "");
  EXPECT_NE(range_alarm("vae.decoder.up_blocks.1", 4e7), "");
  EXPECT_NE(range_alarm("latents", 4e7), "");
  RunMaker a, b;
  const Values large = noise({1, 12, 16}, 1, 4e7f);
  a.in("transformer.norm_out", large).add("vae.decoder.conv_in", large);
  b.in("transformer.norm_out", with_rounding(large, 3)).add("vae.decoder.conv_in", with_rounding(large, 4));
  const std::string notes = all_notes(compared(a, b));
  EXPECT_EQ(notes.find("norm_out"), std::string::npos) << notes;
  EXPECT_NE(notes.find("vae.decoder.conv_in"), std::string::npos) << notes;
}

TEST(Recognition, NoiseRunDecidesWhatRoundingIs) {
  RunMaker a, b, n;
  const Values x = noise({4, 64}, 1);
  a.add("x", x), b.add("x", with_rounding(x, 2, 1e-2f)), n.add("x", with_rounding(x, 3, 1e-4f));
  CompareOptions options;
  options.noise = &n.run;
  EXPECT_EQ(compare_runs(a.run, b.run, options).verdict, "mismatch");  // a hundred times the noise
  EXPECT_EQ(compare_runs(a.run, b.run, options).floor_source, "a second reference run");
}

// Ten blocks whose error doubles, and ten with a bug at the sixth: said in words in the comparison itself.
TEST(Recognition, GrowthIsSaidInTheComparison) {
  const auto run = [](float bug, unsigned seed) {
    RunMaker maker;
    for (int block = 0; block < 10; ++block) {
      const Values x = noise({1, 12, 16}, static_cast<unsigned>(block));
      maker.add("net.blocks." + std::to_string(block),
                with_rounding(x, seed + static_cast<unsigned>(block),
                              (block >= 6 ? bug : 0) + 1e-7f * std::pow(1.5f, static_cast<float>(block))));
    }
    return maker;
  };
  EXPECT_EQ(compared(run(0, 100), run(0, 200)).growth.kind, "smooth");
  const Comparison step = compared(run(0, 100), run(0.2f, 200));
  EXPECT_EQ(step.growth.kind, "step");
  EXPECT_NE(step.growth.words.find("net.blocks.6"), std::string::npos) << step.growth.words;
}

}  // namespace
}  // namespace lockstep
