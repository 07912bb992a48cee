#include <gtest/gtest.h>

#include <cmath>

#include "compare/comparison.h"
#include "diagnose/case/structure.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

// block: norm → act → out = x + act; inputs recorded.
RunView chain(double (*act)(double), unsigned rounding, bool residual = true) {
  RunMaker maker;
  Values x = noise({1, 12, 16}, 1);
  for (int block = 0; block < 3; ++block) {
    const std::string name = "net.blocks." + std::to_string(block);
    const Values y = with_rounding(mapped(x, act), rounding + static_cast<unsigned>(block));
    Values out = y;
    for (size_t i = 0; i < out.v.size(); ++i) out.v[i] += residual ? x.v[i] : 0;
    maker.in(name, x).in(name + ".act", x).add(name + ".act", y).add(name, out);
    x = out;
  }
  return maker.run;
}

TEST(Compare, EqualRunsMatch) {
  const RunView a = chain(silu, 0);
  const Comparison result = compare_runs(a, a, {});
  EXPECT_EQ(result.verdict, "match");
  EXPECT_EQ(result.compared, a.records.size());
  EXPECT_FALSE(result.first.has_value());
}

TEST(Compare, RoundingMatches) {
  const Comparison result = compare_runs(chain(silu, 0), chain(silu, 50), {});
  EXPECT_EQ(result.verdict, "match");
}

TEST(Compare, NothingComparedIsNoPass) {
  RunMaker a, b;
  a.add("x", noise({4, 4}, 1));
  b.add("y", noise({4, 4}, 2));  // another name and other values
  EXPECT_EQ(compare_runs(a.run, b.run, {}).verdict, "nothing_compared");
}

// The run of `chain`, and what its program makes of it under a name of its own.
RunView ending(const std::string& name, const Values& end) {
  RunMaker maker;
  maker.run = chain(silu, 0);
  return maker.add(name, end, Role::kCheckpoint).run;
}

TEST(Compare, AnotherPictureUnderAnotherNameIsNoMatch) {
  const Values picture = noise({1, 8, 8, 3}, 7);
  const Comparison other = compare_runs(ending("image", picture), ending("picture", noise({1, 8, 8, 3}, 8)), {});
  EXPECT_EQ(other.verdict, "mismatch");
  ASSERT_TRUE(other.first.has_value());
  EXPECT_EQ(other.first->stage, "image");
  EXPECT_EQ(compare_runs(ending("image", picture), ending("picture", picture), {}).verdict, "match");
}

TEST(Compare, AStageOfAnotherNameThatAnswersNothingIsNoMatch) {
  const Values stage = noise({1, 40}, 7);
  const RunView reference = ending("latents", stage), own = ending("sampled", noise({1, 40}, 8));
  const Comparison other = compare_runs(reference, own, {});
  EXPECT_EQ(other.verdict, "partial");
  EXPECT_EQ(other.coverage.left_out, 1u);
  EXPECT_NE(verdict_text(other, reference, own, false).string().find("latents, the reference's last"),
            std::string::npos);
  EXPECT_EQ(compare_runs(ending("latents", stage), ending("sampled", stage), {}).verdict, "match");
  // A tensor of another size is none of the reference's: it may be named.
  EXPECT_EQ(compare_runs(ending("latents", stage), ending("count", noise({3}, 8)), {}).verdict, "match");
}

TEST(Compare, ModuleIsBlamedWhenItsInputIsRight) {
  RunView bad = chain(silu, 0);
  // the second block's activation is ReLU; everything after follows from it
  const RunView relu = chain([](double x) { return x > 0 ? x : 0; }, 0);
  for (size_t i = 6; i < bad.records.size(); ++i) bad.records[i].load = relu.records[i].load;
  // its own output alone must be what ReLU makes of the right input
  const Values x = values_from(bad.records[5].load());
  const Values y = mapped(x, [](double v) { return v > 0 ? v : 0; });
  bad.records[6].load = [y] { return Tensor::from<float>(y.shape, y.v); };
  const Comparison result = compare_runs(chain(silu, 0), bad, {});
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(result.first->stage, "net.blocks.1.act");
  EXPECT_EQ(result.first->kind, "module");
  ASSERT_FALSE(result.causes.empty());
  EXPECT_EQ(result.causes[0].cause.id(), "activation.kind");
}

TEST(Compare, GlueIsBlamedWhenAllItsPartsAreRight) {
  const RunView good = chain(silu, 0);
  RunView bad = chain(silu, 0);
  const RunView without = chain(silu, 0, false);  // the residual of block 0 is missing
  bad.records[3].load = without.records[3].load;
  for (size_t i = 4; i < bad.records.size(); ++i) bad.records[i].load = without.records[i].load;
  const Comparison result = compare_runs(good, bad, {});
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(result.first->kind, "glue");
  EXPECT_EQ(result.first->parent, "net.blocks.0");
  ASSERT_FALSE(result.causes.empty());
  EXPECT_TRUE(result.causes[0].cause.id() == "residual.missing" || result.causes[0].cause.id() == "stage.replaced")
      << result.causes[0].cause.id();
}

TEST(Compare, OtherLayoutIsRecognisedByContentAndSaid) {
  RunMaker a, b;
  const Values x = noise({1, 6, 4, 5}, 3);
  a.add("vae.conv", x);
  b.add("vae.conv", permuted(x, {0, 2, 3, 1}));  // NHWC
  const Comparison result = compare_runs(a.run, b.run, {});
  EXPECT_EQ(result.verdict, "match");
  EXPECT_EQ(result.results[0].state, PairState::kLayout);
  ASSERT_FALSE(result.notes.empty());
  EXPECT_NE(result.notes[0].find("layout"), std::string::npos);
}

TEST(Compare, SameShapeOfOtherValuesIsNotForgiven) {
  RunMaker a, b;
  a.add("x", noise({1, 6, 4, 5}, 3));
  b.add("x", noise({1, 4, 5, 6}, 4));
  EXPECT_EQ(compare_runs(a.run, b.run, {}).verdict, "mismatch");
}

TEST(Compare, CaptureOfAnotherStageIsTold) {
  RunMaker a, b;
  const Values x = noise({1, 8, 16}, 1), y = noise({1, 8, 16}, 2), z = noise({1, 8, 16}, 3);
  a.add("net.m.one", x).add("net.m.two", y).add("net.m", z).add("net", z);
  b.add("net.m.one", x).add("net.m.two", x).add("net.m", z).add("net", z);
  const Comparison result = compare_runs(a.run, b.run, {});
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(result.first->kind, "capture");
  ASSERT_FALSE(result.causes.empty());
  EXPECT_EQ(result.causes[0].cause.id(), "capture.other_stage");
}

TEST(Compare, NoFamilyIsAnAnswer) {
  RunMaker a, b;
  Values x = noise({1, 8, 16}, 1), y = noise({1, 8, 16}, 2);
  for (float& value : x.v) value = value * value * value;  // no standard normal, so no "other noise"
  a.add("net.m", x);
  b.add("net.m", y);
  const Comparison result = compare_runs(a.run, b.run, {});
  EXPECT_EQ(result.verdict, "mismatch");
  EXPECT_TRUE(result.causes.empty()) << result.causes[0].cause.id();
}

TEST(Compare, RegionIsSaidInWords) {
  RunMaker a, b;
  const Values x = noise({1, 32, 16}, 1);
  Values y = x;
  for (int64_t t = 20; t < 32; ++t)
    for (float& value : y.row(t)) value += 1;
  a.add("net.m", x);
  b.add("net.m", y);
  const Comparison result = compare_runs(a.run, b.run, {});
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(result.first->region, "only tokens 20 and later");
}

TEST(Compare, OneWrongTokenOfManyIsFound) {
  RunMaker a, b;
  const Values x = noise({1, 4096, 8}, 1);
  Values y = with_rounding(x, 2, 1e-3f);
  for (float& value : y.row(77)) value = -value;
  a.add("net.m", x), b.add("net.m", y);
  CompareOptions options;
  for (RecordedTensor* record : {&a.run.records[0], &b.run.records[0]}) record->dtype = DType::kBF16;  // bf16's floor
  const Comparison result = compare_runs(a.run, b.run, options);
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(result.first->region, "only token 77");
}

TEST(Compare, ToleranceFileReplacesTheFloor) {
  RunMaker a, b;
  const Values x = noise({4, 16}, 1);
  a.add("x", x), b.add("x", with_rounding(x, 2, 1e-2f));
  EXPECT_EQ(compare_runs(a.run, b.run, {}).verdict, "mismatch");
  CompareOptions options;
  options.tolerances["x*"] = 0.05;
  EXPECT_EQ(compare_runs(a.run, b.run, options).verdict, "match");
}

TEST(Compare, NoiseRunIsTheFloor) {
  RunMaker a, b, n;
  const Values x = noise({4, 64}, 1);
  a.add("x", x), b.add("x", with_rounding(x, 2, 1e-2f)), n.add("x", with_rounding(x, 3, 1e-2f));
  CompareOptions options;
  options.noise = &n.run;
  EXPECT_EQ(compare_runs(a.run, b.run, options).verdict, "match");
}

TEST(Pairing, MapRulesCarryCaptures) {
  MapRule rule{"blocks.*.q", "net.layers.*.to_q", {}, {}, {}};
  EXPECT_EQ(mapped_name(rule, "blocks.12.q").value(), "net.layers.12.to_q");
  EXPECT_FALSE(mapped_name(rule, "blocks.12.k").has_value());
}

TEST(Structure, TupleOutputsBelongToTheirModule) {
  RunMaker a;
  const Values x = noise({2, 2}, 1);
  a.add("net.block.attn", x)
      .add("net.block.0", x)
      .add("net.block.1", x)
      .add("net.list.0", x)
      .add("net.list.0.child", x);
  const Structure structure(a.run);
  EXPECT_EQ(structure.site(1).module, "net.block");
  EXPECT_EQ(structure.site(2).slot, "1");
  EXPECT_EQ(structure.site(3).module, "net.list.0");
}

TEST(Growth, StepAgainstSmooth) {
  const std::vector<std::string> names{"a", "b", "c", "d", "e", "f"};
  EXPECT_EQ(fit_growth({1e-7, 1.4e-7, 2e-7, 3e-7, 4e-7, 6e-7}, names).kind, "smooth");
  const Growth step = fit_growth({1e-7, 1.4e-7, 2e-7, 0.3, 0.35, 0.4}, names);
  EXPECT_EQ(step.kind, "step");
  EXPECT_EQ(step.jump_at, 3u);
}

TEST(Growth, ASmallStepStandsOutWhereRoundingGrowsEvenly) {
  std::vector<std::string> names;
  std::vector<double> even, stepped;
  for (int i = 0; i < 24; ++i) {
    names.push_back("block " + std::to_string(i));
    even.push_back(4.6e-3 * std::pow(1.03, i) * (i % 2 ? 1.03 : 1));
    stepped.push_back(even.back() * (i < 13 ? 1 : 2.4));
  }
  EXPECT_EQ(fit_growth(even, names).kind, "smooth");
  const Growth step = fit_growth(stepped, names);
  EXPECT_EQ(step.kind, "step");
  EXPECT_EQ(step.jump_at, 13u);
  EXPECT_NE(step.words.find("block 13"), std::string::npos);
  stepped.back() = even.back();  // it does not last
  EXPECT_EQ(fit_growth(stepped, names).kind, "smooth");
}

TEST(Growth, WordsFitTheNumbers) {
  const std::vector<std::string> names{"a", "b", "c", "d", "e", "f"};
  EXPECT_EQ(fit_growth({0, 2e-3, 0}, {"a", "b", "c"}).words.find("rounding grows"), std::string::npos);
  EXPECT_EQ(fit_growth({1e-7, 1e-7, 2e-7, INFINITY, INFINITY, INFINITY}, names).words,
            "NaN or infinities begin at d: a bug there");
  EXPECT_EQ(fit_growth({0, 0, 0, 3e-3, 3e-3, 3e-3}, names).words, "the error begins at d: a bug there, not rounding");
}

}  // namespace
}  // namespace lockstep
