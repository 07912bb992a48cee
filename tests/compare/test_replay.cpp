// A port that names its first and its last tensor: the stages in between are replayed from the reference's record, in
// all layers that share the code.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "capture/checksum.h"
#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

constexpr int64_t kReplayTokens = 11, kReplayWidth = 16, kReplayHeads = 2, kReplayWide = 40;

struct ReplayMistake {
  bool scores_unscaled = false, no_mask = false, no_residual = false, exchanged = false, norm_eps = false,
       o_from_q = false, only_last_layer = false, nonsense = false;
};

Values matrix_product(const Values& x, const Values& w) {
  Values out = make_values({x.rows(), w.rows()});
  for (int64_t row = 0; row < x.rows(); ++row)
    for (int64_t i = 0; i < w.rows(); ++i)
      out.row(row)[static_cast<size_t>(i)] = static_cast<float>(dot(x.row(row), w.row(i)));
  return out;
}

Values rms_normed(const Values& x, const Values& weight, double eps) {
  Values out = x;
  for (int64_t row = 0; row < x.rows(); ++row) {
    const double factor = 1 / std::sqrt(squared_norm(x.row(row)) / static_cast<double>(x.last()) + eps);
    for (size_t c = 0; c < weight.v.size(); ++c)
      out.row(row)[c] = static_cast<float>(x.row(row)[c] * factor * weight.v[c]);
  }
  return out;
}

Values attended(const Values& q, const Values& k, const Values& v, bool scaled, bool masked) {
  const size_t d = static_cast<size_t>(kReplayWidth / kReplayHeads);
  Values out = make_values(q.shape);
  for (size_t head = 0; head < static_cast<size_t>(kReplayHeads); ++head)
    for (int64_t i = 0; i < q.rows(); ++i) {
      std::vector<double> scores;
      double sum = 0;
      for (int64_t j = 0; j < (masked ? i + 1 : q.rows()); ++j) {
        double score = 0;
        for (size_t c = head * d; c < (head + 1) * d; ++c) score += static_cast<double>(q.row(i)[c]) * k.row(j)[c];
        scores.push_back(std::exp(scaled ? score / std::sqrt(static_cast<double>(d)) : score));
        sum += scores.back();
      }
      for (size_t j = 0; j < scores.size(); ++j)
        for (size_t c = head * d; c < (head + 1) * d; ++c)
          out.row(i)[c] += static_cast<float>(scores[j] / sum * v.row(static_cast<int64_t>(j))[c]);
    }
  return out;
}

Values added(const Values& a, const Values& b) {
  Values out = a;
  for (size_t i = 0; i < out.v.size(); ++i) out.v[i] += b.v[i];
  return out;
}

class Replay : public ::testing::Test {
 protected:
  Replay() {
    unsigned seed = 1;
    const auto add = [&](const std::string& name, const Shape& shape, float scale) {
      weights_->add(name, noise(shape, seed++, scale));
    };
    for (const std::string layer : {"net.layers.0.", "net.layers.1."}) {
      for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"})
        add(layer + name + ".weight", {kReplayWidth, kReplayWidth}, 0.4f);
      for (const char* name : {"mlp.gate_proj", "mlp.up_proj"})
        add(layer + name + ".weight", {kReplayWide, kReplayWidth}, 0.3f);
      add(layer + "mlp.down_proj.weight", {kReplayWidth, kReplayWide}, 0.2f);
      for (const char* name : {"norm1", "norm2"}) add(layer + name + ".weight", {kReplayWidth}, 1);
    }
  }

  RunView run(const ReplayMistake& mistake, bool all, unsigned seed = 90) const {
    RunMaker maker;
    const auto given = [&](const std::string& name, const Values& x) {
      if (all) maker.in(name, x);
    };
    const auto gives = [&](const std::string& name, const Values& x) {
      if (all) maker.add(name, x);
      return x;
    };
    const auto layer = [&](const std::string& name, const Values& x, const std::string& from) {
      given(name, x);
      return gives(name, matrix_product(x, *weights_->find(from + ".weight")));
    };
    Values h = noise({kReplayTokens, kReplayWidth}, seed, 0.02f);  // small: an eps counts
    maker.add("words", h, Role::kCheckpoint);
    for (const std::string at : {"net.layers.0", "net.layers.1"}) {
      const ReplayMistake here = mistake.only_last_layer && at == "net.layers.0" ? ReplayMistake{} : mistake;
      given(at, h);
      given(at + ".norm1", h);
      const Values x =
          gives(at + ".norm1", rms_normed(h, *weights_->find(at + ".norm1.weight"), here.norm_eps ? 1e-5 : 1e-6));
      const Values q = layer(at + ".self_attn.q_proj", x, at + ".self_attn.q_proj");
      const Values k = layer(at + ".self_attn.k_proj", x, at + ".self_attn.k_proj");
      const Values v = layer(at + ".self_attn.v_proj", x, at + ".self_attn.v_proj");
      const Values o = layer(at + ".self_attn.o_proj", attended(q, k, v, !here.scores_unscaled, !here.no_mask),
                             at + (here.o_from_q ? ".self_attn.q_proj" : ".self_attn.o_proj"));
      h = here.no_residual ? o : added(h, o);
      given(at + ".norm2", h);
      const Values y = gives(at + ".norm2", rms_normed(h, *weights_->find(at + ".norm2.weight"), 1e-6));
      Values gate = layer(at + ".mlp.gate_proj", y, at + ".mlp.gate_proj");
      Values up = layer(at + ".mlp.up_proj", y, at + ".mlp.up_proj");
      if (here.exchanged) std::swap(gate, up);
      Values product = mapped(gate, silu);
      for (size_t i = 0; i < product.v.size(); ++i) product.v[i] *= up.v[i];
      if (here.nonsense) product = mapped(product, [](double value) { return std::sin(37 * value); });
      h = gives(at, added(h, layer(at + ".mlp.down_proj", product, at + ".mlp.down_proj")));
    }
    maker.add("last", h, Role::kCheckpoint);
    if (all)
      for (RecordedTensor& record : maker.run.records)  // as a recorder does: equal bytes, equal checksums
        record.checksum = checksum_text(record.load().contiguous().contiguous_bytes());
    return maker.run;
  }

  // Two items of one batch: the records of two runs, one behind the other.
  RunView batch_of_two(const ReplayMistake& mistake, bool all) const {
    RunView out = run(mistake, all);
    const RunView second = run(mistake, all, 91);
    for (size_t i = 0; i < out.records.size(); ++i) {
      RecordedTensor& record = out.records[i];
      Values both = values_from(record.load());
      const Values other = values_from(second.records[i].load());
      both.v.insert(both.v.end(), other.v.begin(), other.v.end());
      both.shape.insert(both.shape.begin(), 2);
      const Tensor joined = Tensor::from<float>(both.shape, both.v);
      record.shape = both.shape, record.load = [joined] { return joined; };
      if (all) record.checksum = checksum_text(joined.contiguous_bytes());
    }
    return out;
  }

  Comparison compared(const ReplayMistake& mistake) const {
    CompareOptions options;
    options.weights_reference = weights_;
    return compare_runs(run({}, true), run(mistake, false), options);
  }
  std::string cause(const ReplayMistake& mistake) const { return first_cause(compared(mistake)); }

  std::shared_ptr<MemoryWeights> weights_ = std::make_shared<MemoryWeights>();
};

TEST_F(Replay, AMistakeInEveryLayerIsNamedFromTheLastTensorAlone) {
  EXPECT_EQ(compared({}).verdict, "match");
  EXPECT_EQ(cause({.scores_unscaled = true}), "attention.scale");
  EXPECT_EQ(cause({.no_mask = true}), "attention.mask_missing");
  EXPECT_EQ(cause({.no_residual = true}), "residual.missing");
  EXPECT_EQ(cause({.exchanged = true}), "activation.gate_up_exchanged");
  EXPECT_EQ(cause({.norm_eps = true}), "norm.eps");
  EXPECT_EQ(cause({.o_from_q = true}), "linear.other_weight");
}

TEST_F(Replay, EachItemOfABatchAttendsToItself) {
  CompareOptions options;
  options.weights_reference = weights_;
  const auto cause = [&](const ReplayMistake& mistake) {
    return first_cause(compare_runs(batch_of_two({}, true), batch_of_two(mistake, false), options));
  };
  EXPECT_EQ(cause({.scores_unscaled = true}), "attention.scale");
  EXPECT_EQ(cause({.no_mask = true}), "attention.mask_missing");
  EXPECT_EQ(cause({.exchanged = true}), "activation.gate_up_exchanged");  // behind an attention
}

TEST_F(Replay, AWeightOfOneLayerAlone) {
  const Comparison result = compared({.o_from_q = true, .only_last_layer = true});
  EXPECT_EQ(first_cause(result), "linear.other_weight");
  ASSERT_FALSE(result.causes.empty());
  EXPECT_EQ(result.causes[0].look_at, "net.layers.1.self_attn.o_proj");
}

TEST_F(Replay, WhatLiesBetweenIsToldWhereNothingExplainsIt) {
  const Comparison result = compared({.nonsense = true});
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(first_cause(result), "");
  const std::vector<std::string>& between = result.first->stages_between;
  const auto has = [&](const char* name) { return std::find(between.begin(), between.end(), name) != between.end(); };
  EXPECT_TRUE(has("net.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(has("input net.layers.1.mlp.down_proj"));
  EXPECT_EQ(result.first->starts, std::vector<std::string>{"words"});
}

// A code that is not replayed makes what the layers start from, and nothing before the bad tensor agrees: it is no less
// suspect than the layers.
TEST_F(Replay, WhatTheReplayStartsFromMayBeWrongToo) {
  RunMaker reference;
  reference.in("net.conv", noise({5}, 1)).add("net.conv", noise({5}, 2));
  RunView right = run({}, true), wrong = run({}, false, 95);
  right.records.erase(right.records.begin());  // "words" is named by neither
  right.records.insert(right.records.begin(), reference.run.records.begin(), reference.run.records.end());
  wrong.records.erase(wrong.records.begin());
  CompareOptions options;
  options.weights_reference = weights_;
  const Comparison result = compare_runs(right, wrong, options);
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(first_cause(result), "");
  const std::vector<std::string>& between = result.first->stages_between;
  EXPECT_NE(std::find(between.begin(), between.end(), "net.conv"), between.end());
}

}  // namespace
}  // namespace lockstep
