// Two runs whose names differ: who is paired with whom, what is left out, and that every sentence about it is true.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "capture/checksum.h"
#include "compare/comparison.h"
#include "compare/map_proposal.h"
#include "diagnose/layout/layouts.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using synthetic::compared;
using synthetic::noise;
using synthetic::partners_of;
using synthetic::RunMaker;
using synthetic::with_rounding;

template <typename T>
RecordedTensor whole_numbers(const std::string& name, const std::vector<T>& values) {
  RecordedTensor record;
  record.key = {name, -1, 0, {}};
  record.role = Role::kInput;
  record.dtype = DTypeOf<T>::kValue;
  record.shape = {static_cast<int64_t>(values.size())};
  const Tensor tensor = Tensor::from<T>(record.shape, std::span<const T>(values));
  record.load = [tensor] { return tensor; };
  return record;
}

TEST(Evidence, WholeNumbersOfEqualValueAreEqualInAnyWidth) {
  RunMaker reference, port;
  const Values x = noise({4, 8}, 1);
  reference.run.records.push_back(whole_numbers<int64_t>("net.position_ids", {0, 1, 2, 3}));
  port.run.records.push_back(whole_numbers<int32_t>("net.position_ids", {0, 1, 2, 3}));
  reference.add("net.out", x), port.add("net.out", x);
  EXPECT_EQ(compared(reference, port).verdict, "match");
  port.run.records[0] = whole_numbers<int32_t>("net.position_ids", {0, 1, 2, 4});
  EXPECT_EQ(compared(reference, port).verdict, "mismatch");
}

TEST(Evidence, ANumberDoesNotSpanDots) {
  const MapRule rule{"layers.#", "blocks.#", {}, {}, {}, {}, {}};
  EXPECT_EQ(mapped_name(rule, "layers.12"), "blocks.12");
  EXPECT_FALSE(mapped_name(rule, "layers.0.attn"));
  EXPECT_FALSE(mapped_name(rule, "layers.x"));
}

// Blocks of a reference and of a port that calls everything otherwise; from `wrong` on the port's values are others.
void add_blocks(RunMaker& reference, RunMaker& port, int wrong) {
  Values x = noise({6, 8}, 1);
  for (int block = 0; block < 3; ++block) {
    const std::string of = "transformer.blocks." + std::to_string(block),
                      own = "Net.model.layer" + std::to_string(block);
    const unsigned seed = 100u * static_cast<unsigned>(block);
    const auto values = [&](unsigned k) { return noise({6, 8}, seed + k); };
    const auto mine = [&](unsigned k) { return block >= wrong ? noise({6, 8}, seed + k + 50) : values(k); };
    const Values input = x, own_input = block > wrong ? noise({6, 8}, seed + 49) : x;
    for (const auto& [name, alias, k] : {std::tuple{"attn.to_q", "self.wq", 1u}, std::tuple{"attn.to_k", "self.wk", 2u},
                                         std::tuple{"ff.net.2", "mlp.down", 3u}}) {
      reference.in(of + "." + name, input).add(of + "." + name, values(k));
      port.in(own + "." + alias, own_input).add(own + "." + alias, mine(k));
    }
    x = values(4);
    reference.add(of, x), port.add(own, mine(4));
  }
}

TEST(Evidence, BlocksThatAgreeTeachThoseThatDiffer) {
  RunMaker reference, port;
  add_blocks(reference, port, 1);
  const std::map<std::string, std::string> expected = {{"Net.model.layer#.self.wq", "transformer.blocks.#.attn.to_q"},
                                                       {"Net.model.layer#.self.wk", "transformer.blocks.#.attn.to_k"},
                                                       {"Net.model.layer#.mlp.down", "transformer.blocks.#.ff.net.2"},
                                                       {"Net.model.layer#", "transformer.blocks.#"}};
  EXPECT_EQ(partners_of(reference, port), expected);
}

TEST(Evidence, BothSidesOfACallGoToOnePartner) {
  RunMaker reference, port;
  add_blocks(reference, port, 1);
  std::map<std::string, std::string> inputs;
  for (const ProposedRule& rule : propose_map(reference.run, port.run, {}, ""))
    if (rule.rule.input.value_or(false)) inputs[rule.rule.candidate] = rule.rule.reference;
  for (const auto& [own, of] : partners_of(reference, port))
    if (inputs.contains(own)) {
      EXPECT_EQ(inputs[own], of);
    }
}

// A list of one layer is called as a whole: it hands on what it is given. The reference has a dropout behind the layer,
// which is given another tensor.
TEST(Evidence, WhatACallHandsOnIsNoOtherTensor) {
  RunMaker reference, port;
  for (int block = 0; block < 3; ++block) {
    const std::string of = "transformer.blocks." + std::to_string(block), own = "Net.blocks." + std::to_string(block);
    const unsigned seed = 100u * static_cast<unsigned>(block);
    const auto values = [&](unsigned k) { return noise({6, 8}, seed + k); };
    reference.in(of + ".attn.to_q", values(1)).add(of + ".attn.to_q", values(2));
    port.in(own + ".attn.to_q", values(1)).add(own + ".attn.to_q", values(2));
    const Values x = noise({6, 8}, seed + 50), y = noise({6, 8}, seed + 51);
    reference.in(of + ".attn.to_out.0", values(3)).add(of + ".attn.to_out.0", values(4));
    reference.in(of + ".attn.to_out.1", values(4)).add(of + ".attn.to_out.1", values(4));
    port.in(own + ".attn.to_out", x).in(own + ".attn.to_out.0", x);
    port.add(own + ".attn.to_out.0", y).add(own + ".attn.to_out", y);
  }
  for (RunMaker* run : {&reference, &port})
    for (RecordedTensor& record : run->run.records)
      record.checksum = checksum_text(record.load().contiguous().contiguous_bytes());
  for (const ProposedRule& rule : propose_map(reference.run, port.run, {}, ""))
    if (rule.rule.input.value_or(false)) {
      EXPECT_FALSE(rule.rule.candidate.ends_with("to_out") && rule.rule.reference.ends_with("to_out.1"))
          << rule.rule.candidate << " is given what goes into the layer";
    }
}

TEST(Evidence, APrefixThatEqualTensorsShowHoldsForThoseThatDiffer) {
  RunMaker reference, port;
  for (int i = 0; i < 4; ++i) {
    const std::string name = std::array{"embed", "encode", "mix", "head"}[static_cast<size_t>(i)];
    const Values x = noise({5, 7}, static_cast<unsigned>(i));
    reference.add("model." + name, x);
    port.add("Wrapper.inner." + name, i < 2 ? x : noise({5, 7}, 90u + static_cast<unsigned>(i)));
  }
  const auto partners = partners_of(reference, port);
  EXPECT_EQ(partners.size(), 4u);
  EXPECT_EQ(partners.at("Wrapper.inner.head"), "model.head");
  EXPECT_EQ(partners.at("Wrapper.inner.mix"), "model.mix");
}

TEST(Evidence, ContentThatDisagreesIsNoPairByOrderAndShapeAlone) {
  RunMaker reference, port;
  reference.add("alpha", noise({4, 4}, 1)).add("beta", noise({4, 4}, 2)).add("gamma", noise({4, 4}, 3));
  port.add("one", noise({4, 4}, 1), Role::kCheckpoint).add("two", noise({4, 4}, 9), Role::kCheckpoint);
  const auto partners = partners_of(reference, port);
  EXPECT_EQ(partners, (std::map<std::string, std::string>{{"one", "alpha"}}));
}

TEST(Evidence, AContainerAndItsOnlyLayerDoNotLoseTheirPartner) {
  for (const bool wrong : {false, true}) {
    RunMaker reference, port;
    const Values q = noise({4, 6}, 1), out = noise({4, 6}, 2), own = wrong ? noise({4, 6}, 3) : out;
    reference.add("net.attn.to_q", q).add("net.attn.to_out.0", out);
    port.add("m.attn.to_q", q).add("m.attn.to_out.0", own).add("m.attn.to_out", own);
    port.run.records[1].checksum = port.run.records[2].checksum = "same";
    size_t found = 0;
    for (const auto& [mine, of] : partners_of(reference, port)) found += of == "net.attn.to_out.0";
    EXPECT_EQ(found, 1u);
  }
}

// A port without the activation's module: what is left over is its convolution, whose layer inside has the partner.
TEST(Evidence, ALayerThatIsKnownByItsValuesTakesNoOtherPartner) {
  RunMaker reference, port;
  const Values x = noise({4, 6}, 1), skipped = noise({4, 8}, 2), normed = noise({4, 6}, 3), active = noise({4, 6}, 4),
               out = noise({4, 8}, 5);
  reference.in("net.res.conv_shortcut", x).add("net.res.conv_shortcut", skipped);
  reference.in("net.res.norm", x).add("net.res.norm", normed);
  reference.in("net.res.nonlinearity", normed).add("net.res.nonlinearity", active);
  reference.in("net.res.conv", active).add("net.res.conv", out);
  port.in("m.res.norm", x).add("m.res.norm", normed);
  port.in("m.res.conv", active).add("m.res.conv", out);
  port.in("m.res.skip", x).in("m.res.skip.inner", x).add("m.res.skip.inner", skipped).add("m.res.skip", skipped);
  for (const auto& [mine, of] : partners_of(reference, port)) EXPECT_NE(of, "net.res.nonlinearity") << mine;
  EXPECT_EQ(compared(reference, port).verdict, "match");
}

TEST(Evidence, PassesInAnotherOrderAreFoundByContent) {
  RunMaker reference, port;
  const Values cond = noise({4, 6}, 1), uncond = noise({4, 6}, 2);
  reference.add("net.out", cond, Role::kOutput, 0, {{"pass", "cond"}});
  reference.add("net.out", uncond, Role::kOutput, 0, {{"pass", "uncond"}});
  port.add("net.out", uncond).add("net.out", cond);
  port.run.records[1].key.hit = 1;
  EXPECT_EQ(compared(reference, port).verdict, "match");
}

TEST(Evidence, ATensorHardlyBeyondItsLimitWhoseConsumersAgreeIsHarmless) {
  RunMaker reference, port;
  for (int i = 0; i < 6; ++i) {
    const std::string name = "net.stage" + std::to_string(i);
    const Values x = noise({16, 32}, static_cast<unsigned>(i));
    reference.add(name, x);
    port.add(name, with_rounding(x, 50u + static_cast<unsigned>(i), i == 2 ? 1.1e-5f : 1e-7f));
  }
  const Comparison result = compared(reference, port);
  EXPECT_EQ(result.verdict, "match");
  EXPECT_TRUE(result.results[2].harmless) << result.results[2].in_floors;
  EXPECT_TRUE(std::any_of(result.notes.begin(), result.notes.end(),
                          [](const std::string& note) { return note.find("harmless") != std::string::npos; }));
  const std::string text = text_from(result, reference.run, port.run, true, false).string();
  EXPECT_EQ(text.find("a bug there"), std::string::npos) << text;
}

Values layer_normed(const Values& of, double eps) {
  Values out = of;
  for (int64_t row = 0; row < of.rows(); ++row) {
    double mean = 0, var = 0;
    for (const float v : of.row(row)) mean += v;
    mean /= static_cast<double>(of.last());
    for (const float v : of.row(row)) var += (v - mean) * (v - mean);
    var /= static_cast<double>(of.last());
    for (float& v : out.row(row)) v = static_cast<float>((v - mean) / std::sqrt(var + eps));
  }
  return out;
}

// A norm among neighbours that carry larger errors of their own; what comes after it agrees where `after` says so.
Comparison with_a_norm(const std::function<Values(const Values&)>& own_norm, bool after) {
  RunMaker reference, port;
  for (int i = 0; i < 4; ++i) {
    const Values other = noise({16, 64}, 20u + static_cast<unsigned>(i));
    reference.add("net.other" + std::to_string(i), other);
    port.add("net.other" + std::to_string(i), with_rounding(other, 30u + static_cast<unsigned>(i), 1.5e-6f));
  }
  const Values x = noise({16, 64}, 1, 0.7f), own = with_rounding(x, 5), last = noise({16, 64}, 9);
  reference.in("net.norm", x).add("net.norm", layer_normed(x, 1e-6));
  port.in("net.norm", own).add("net.norm", own_norm(own));
  if (after) reference.add("net.last", last), port.add("net.last", with_rounding(last, 6));
  return compared(reference, port);
}

TEST(Evidence, ANormIsJudgedByItsOwnInputs) {
  for (const bool after : {false, true}) {
    const Comparison result = with_a_norm([](const Values& x) { return layer_normed(x, 1e-5); }, after);
    ASSERT_EQ(result.verdict, "mismatch");
    EXPECT_EQ(result.first->stage, "net.norm");
    EXPECT_EQ(synthetic::first_cause(result), "norm.eps");
  }
}

TEST(Evidence, WhatAStageMakesIsHarmlessWhereNoCauseExplainsItAndNothingFollows) {
  const auto noisy = [](const Values& x) { return with_rounding(layer_normed(x, 1e-6), 7, 1e-5f); };
  const Comparison result = with_a_norm(noisy, true);
  EXPECT_EQ(result.verdict, "match");
  EXPECT_EQ(std::count_if(result.results.begin(), result.results.end(),
                          [](const PairResult& each) { return each.made_here && each.harmless; }),
            1);
}

TEST(Evidence, AProgramThatFailedIsNoMatch) {
  RunMaker reference, port;
  for (int i = 0; i < 10; ++i) reference.add("net.stage" + std::to_string(i), noise({4, 4}, static_cast<unsigned>(i)));
  port.add("net.stage0", noise({4, 4}, 0));
  port.run.header = {{"status", "failed"}, {"program", {{"exit_code", 1}}}};
  const Comparison result = compared(reference, port);
  EXPECT_EQ(result.verdict, "partial");
  const std::string text = text_from(result, reference.run, port.run, false, false).string();
  const std::string first_line = text.substr(0, text.find('\n'));
  EXPECT_NE(first_line.find("10 % of the reference's 10"), std::string::npos) << first_line;
  EXPECT_NE(first_line.find("your program failed with exit status 1"), std::string::npos) << first_line;
  CompareOptions options;
  options.partial = true;
  EXPECT_EQ(compare_runs(reference.run, port.run, options).verdict, "match");
}

TEST(Evidence, ASearchForAxesEndsWhateverTheTensorsAre) {
  // A tolerance so wide that nearly every order agrees by its sample.
  const Values a = noise({12, 16, 24, 32}, 1);
  Values b = a;
  for (float& v : b.v) v = 1 + 0.3f * v;
  EXPECT_FALSE(find_axis_order(b, reshaped(noise({12, 16, 24, 32}, 2), {24, 32, 12, 16}), 0.2));
}

}  // namespace
}  // namespace lockstep
