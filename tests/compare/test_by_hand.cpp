// Ports that name their tensors by hand: outputs here and there, no inputs, names of their own.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "capture/checksum.h"
#include "compare/comparison.h"
#include "compare/map_proposal.h"
#include "diagnose/case/weight_names.h"
#include "diagnose/linear/inverse_linear.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

constexpr int64_t kWidth = 16, kWide = 48, kTokens = 24;

Values linear(const Values& x, const Values& w, const Values* bias) {
  Values out = make_values({x.rows(), w.rows()});
  for (int64_t t = 0; t < x.rows(); ++t)
    for (int64_t i = 0; i < w.rows(); ++i) {
      double sum = bias ? bias->v[static_cast<size_t>(i)] : 0;
      for (int64_t k = 0; k < w.last(); ++k)
        sum += static_cast<double>(x.row(t)[static_cast<size_t>(k)]) * w.row(i)[static_cast<size_t>(k)];
      out.row(t)[static_cast<size_t>(i)] = static_cast<float>(sum);
    }
  return out;
}

Values layer_norm(const Values& x) {
  Values out = x;
  for (int64_t t = 0; t < x.rows(); ++t) {
    double mean = 0, square = 0;
    for (const float v : x.row(t)) mean += v / static_cast<double>(x.last());
    for (const float v : x.row(t)) square += (v - mean) * (v - mean) / static_cast<double>(x.last());
    for (float& v : out.row(t)) v = static_cast<float>((v - mean) / std::sqrt(square + 1e-6));
  }
  return out;
}

Values channelwise(const Values& x, const std::function<double(double, size_t)>& f) {
  Values out = x;
  for (int64_t t = 0; t < x.rows(); ++t)
    for (size_t c = 0; c < static_cast<size_t>(x.last()); ++c) out.row(t)[c] = static_cast<float>(f(x.row(t)[c], c));
  return out;
}

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_erf(double x) {
  return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
}

struct Mistake {
  bool shift_scale = false, gate = false, erf = false, q_transposed = false, nonsense = false, gate_of_scale = false,
       branch_normed = false;
};

// A block: norm, modulation, three projections; then a gated residual, a norm and a feed-forward layer.
class ByHand : public ::testing::Test {
 protected:
  ByHand() {
    unsigned seed = 10;
    for (const char* name : {"to_q", "to_k", "to_v"}) add_layer(name, kWidth, kWidth, seed++);
    add_layer("ff_in", kWide, kWidth, seed++), add_layer("ff_out", kWidth, kWide, seed++);
  }

  void add_layer(const std::string& name, int64_t outputs, int64_t inputs, unsigned seed) {
    weights_->add(prefix_ + name + ".weight", noise({outputs, inputs}, seed, 0.3f));
    weights_->add(prefix_ + name + ".bias", noise({outputs}, seed + 100, 0.1f));
  }

  Values apply(const std::string& name, const Values& x, bool transposed = false) const {
    const Values w = *weights_->find(prefix_ + name + ".weight"), b = *weights_->find(prefix_ + name + ".bias");
    return linear(x, transposed ? permuted(w, {1, 0}) : w, &b);
  }

  RunView run(const Mistake& mistake, bool inputs) const {
    RunMaker maker;
    const auto given = [&](const std::string& name, const Values& x) {
      if (inputs) maker.in("net.block" + name, x);
    };
    const auto gives = [&](const std::string& name, const Values& x, bool by_hand) {
      if (inputs || by_hand) maker.add("net.block" + name, x, inputs ? Role::kOutput : Role::kCheckpoint);
    };
    const Values h = noise({kTokens, kWidth}, 1), branch = noise({kTokens, kWidth}, 5);
    const Values scale = noise({kWidth}, 2, 0.5f), shift = noise({kWidth}, 3), gate = noise({kWidth}, 4);
    given(".hidden", h);
    gives(".mod", joined(shift, scale, gate), true);
    given(".norm", h);
    const Values normal = layer_norm(h);
    gives(".norm", normal, false);
    Values x = channelwise(normal, [&](double v, size_t c) {
      return mistake.shift_scale ? v * (1 + shift.v[c]) + scale.v[c] : v * (1 + scale.v[c]) + shift.v[c];
    });
    if (mistake.nonsense)
      x = channelwise(x, [](double v, size_t) { return std::sin(37 * v) + v * v; });  // what no family knows
    for (const char* name : {"to_q", "to_k", "to_v"}) {
      given("." + std::string(name), x);
      gives("." + std::string(name), apply(name, x, mistake.q_transposed && std::string(name) == "to_q"), true);
    }
    gives(".attn", branch, true);
    Values sum = h;
    const Values used = mistake.branch_normed ? layer_norm(branch) : branch;
    const Values& gated = mistake.gate_of_scale ? scale : gate;
    for (size_t i = 0; i < sum.v.size(); ++i) sum.v[i] += (mistake.gate ? 1 : gated.v[i % kWidth]) * used.v[i];
    given(".norm2", sum);
    const Values second = layer_norm(sum);
    gives(".norm2", second, false);
    given(".ff_in", second);
    const Values wide = apply("ff_in", second);
    gives(".ff_in", wide, false);
    const Values active = mapped(wide, mistake.erf ? gelu_erf : gelu_tanh);
    given(".ff_out", active);
    gives(".ff_out", apply("ff_out", active), true);
    gives("", apply("ff_out", active), false);
    if (!inputs) return maker.run;
    for (RecordedTensor& record : maker.run.records) {  // as a recorder does: equal bytes, equal checksums
      record.checksum = checksum_text(record.load().contiguous().contiguous_bytes());
    }
    return maker.run;
  }

  static Values joined(const Values& a, const Values& b, const Values& c) {
    Values out{{1, 3 * kWidth}, a.v};
    out.v.insert(out.v.end(), b.v.begin(), b.v.end());
    out.v.insert(out.v.end(), c.v.begin(), c.v.end());
    return out;
  }

  Comparison compared(const Mistake& mistake) const {
    CompareOptions options;
    options.weights_reference = weights_;
    return compare_runs(run({}, true), run(mistake, false), options);
  }

  static std::string first_cause(const Comparison& result) {
    return result.causes.empty() ? "none" : std::string(result.causes[0].cause.id());
  }

  std::string prefix_ = "net.block.";
  std::shared_ptr<MemoryWeights> weights_ = std::make_shared<MemoryWeights>();
};

TEST_F(ByHand, ARightPortMatches) {
  EXPECT_EQ(compared({}).verdict, "match");
}

TEST_F(ByHand, AnInputIsWorkedBackFromTheLayersThatShareIt) {
  const Comparison result = compared({.shift_scale = true});
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(first_cause(result), "modulate.shift_scale_exchanged");
  EXPECT_EQ(result.first->kind, "glue");
  EXPECT_EQ(result.first->parent, "net.block");
  EXPECT_EQ(result.first->worked_back_from.size(), 3u);
}

TEST_F(ByHand, ALayerThatIsWrongItselfIsNotExcusedByItsInput) {
  const Comparison result = compared({.q_transposed = true});
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(first_cause(result), "linear.transposed_weight");
  EXPECT_TRUE(result.first->worked_back_from.empty());
  EXPECT_EQ(result.first->stage, "net.block.to_q");
}

TEST_F(ByHand, AStepInTheMiddleIsFoundThroughTheStepsAfterIt) {
  EXPECT_EQ(first_cause(compared({.erf = true})), "activation.kind");
  const Comparison result = compared({.gate = true});
  EXPECT_EQ(first_cause(result), "gate.missing");
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(result.first->stage, "net.block.ff_out");
}

TEST_F(ByHand, AGateOfAnotherPartAndANormedBranchAreFoundThroughTheStepsAfterThem) {
  EXPECT_EQ(first_cause(compared({.gate_of_scale = true})), "gate.other_part");
  EXPECT_EQ(first_cause(compared({.branch_normed = true})), "norm.added");
}

TEST_F(ByHand, NothingIsGuessedAndWhatToNameIsSaid) {
  const Comparison result = compared({.nonsense = true});
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(first_cause(result), "none");
  EXPECT_EQ(result.first->kind, "glue");  // three layers agree that what they were given is wrong
  EXPECT_NE(result.first->hint.find("net.block.norm"), std::string::npos) << result.first->hint;
}

TEST_F(ByHand, WeightsWithoutTheComponentsNameAreFound) {
  prefix_ = "";
  weights_ = std::make_shared<MemoryWeights>();
  unsigned seed = 10;
  for (const char* name : {"to_q", "to_k", "to_v"}) add_layer(name, kWidth, kWidth, seed++);
  add_layer("ff_in", kWide, kWidth, seed++), add_layer("ff_out", kWidth, kWide, seed++);
  auto named = std::make_shared<MemoryWeights>();  // as the file of one component has them
  for (const auto& [name, shape] : weights_->shapes()) named->add("block." + name, *weights_->find(name));
  CompareOptions options;
  options.weights_reference = named;
  const Comparison result = compare_runs(run({}, true), run({.shift_scale = true}, false), options);
  EXPECT_EQ(first_cause(result), "modulate.shift_scale_exchanged");
}

TEST_F(ByHand, WeightsOfAnotherModelAreSaidToBeOfNoUse) {
  auto other = std::make_shared<MemoryWeights>();
  other->add("encoder.layers.0.weight", noise({4, 4}, 1));
  CompareOptions options;
  options.weights_reference = other;
  const Comparison result = compare_runs(run({}, true), run({.shift_scale = true}, false), options);
  EXPECT_NE(std::find_if(result.notes.begin(), result.notes.end(),
                         [](const std::string& note) { return note.find("none of the weights") != std::string::npos; }),
            result.notes.end());
}

TEST(InverseLinear, GivesTheInputBack) {
  for (const auto& [outputs, inputs] : {std::pair<int64_t, int64_t>{24, 24}, {60, 24}, {800, 800}, {1600, 800}}) {
    const Values w = noise({outputs, inputs}, 1), x = noise({5, inputs}, 2);
    const Values y = linear(x, w, nullptr);
    const InverseLinear inverse({&w});
    ASSERT_TRUE(inverse.usable());
    EXPECT_LT(relative_error(inverse.input_of({&y}).v, x.v), inputs > 100 ? 2e-2 : 1e-4) << outputs << "x" << inputs;
  }
}

TEST(InverseLinear, RefusesWhatHasNoAnswer) {
  const Values narrow = noise({8, 24}, 1), flat = make_values({24, 24});
  EXPECT_FALSE(InverseLinear({&narrow}).usable());
  EXPECT_FALSE(InverseLinear({&flat}).usable());
  EXPECT_FALSE(InverseLinear({}).usable());
  const Values first = noise({12, 24}, 2), second = noise({12, 24}, 3), x = noise({3, 24}, 4);
  const Values a = linear(x, first, nullptr), b = linear(x, second, nullptr);
  const InverseLinear both({&first, &second});  // neither is enough alone
  ASSERT_TRUE(both.usable());
  EXPECT_LT(relative_error(both.input_of({&a, &b}).v, x.v), 1e-3);
}

TEST(MapProposal, BlocksAreOneRuleAndOrderDoesNotMatter) {
  RunMaker reference, port;
  for (int block = 0; block < 3; ++block) {
    const std::string of = "net.blocks." + std::to_string(block), mine = "l" + std::to_string(block);
    const unsigned seed = static_cast<unsigned>(10 * block);
    const Values out = noise({6, 8}, seed + 1), text = noise({6, 8}, seed + 2, 3), image = noise({6, 8}, seed + 3, 9);
    reference.add(of + ".mlp.net.2", out).add(of + ".0", text).add(of + ".1", image);
    port.add("layers." + std::to_string(block) + ".ff", out, Role::kCheckpoint)
        .add("layers." + std::to_string(block) + ".x", image, Role::kCheckpoint)  // the other way round
        .add("layers." + std::to_string(block) + ".y", text, Role::kCheckpoint);
  }
  std::map<std::string, std::string> rules;
  for (const ProposedRule& rule : propose_map(reference.run, port.run, {}, ""))
    rules[rule.rule.candidate] = rule.rule.reference;
  const std::map<std::string, std::string> expected = {
      {"layers.#.ff", "net.blocks.#.mlp.net.2"}, {"layers.#.x", "net.blocks.#.1"}, {"layers.#.y", "net.blocks.#.0"}};
  EXPECT_EQ(rules, expected);
}

TEST(MapProposal, BlocksBeforeTheBugTeachTheOnesAfterIt) {
  RunMaker reference, port;
  for (int block = 0; block < 3; ++block) {
    const std::string of = "net.blocks." + std::to_string(block), mine = "layers." + std::to_string(block);
    const unsigned seed = static_cast<unsigned>(10 * block);
    const Values norm = noise({6, 8}, seed + 1), out = noise({6, 8}, seed + 2, 2);
    reference.add(of + ".norm", norm).add(of + ".mlp.net.2", out);
    // From block 1 on it is wrong, and looks more like another tensor of the block.
    port.add(mine + ".ff", block == 0 ? out : noise({6, 8}, seed + 3), Role::kCheckpoint);
  }
  const auto rules = propose_map(reference.run, port.run, {}, "");
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_EQ(rules[0].rule.candidate, "layers.#.ff");
  EXPECT_EQ(rules[0].rule.reference, "net.blocks.#.mlp.net.2");
}

}  // namespace
}  // namespace lockstep
