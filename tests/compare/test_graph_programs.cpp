// Runs of programs that have a graph and no modules (ggml): layers come in any order, and what lies between them was
// not recorded.
#include <gtest/gtest.h>

#include <cmath>

#include "capture/checksum.h"
#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

constexpr int64_t kGraphWidth = 16;

Values doubled(const Values& x) {
  return mapped(x, [](double v) { return 2 * v; });
}

Values product_of(const Values& x, const Values& w) {
  Values out = make_values({x.rows(), w.rows()});
  for (int64_t row = 0; row < x.rows(); ++row)
    for (int64_t i = 0; i < w.rows(); ++i)
      out.row(row)[static_cast<size_t>(i)] = static_cast<float>(dot(x.row(row), w.row(i)));
  return out;
}

MapRule rule_of(const char* candidate, const char* reference) {
  MapRule rule;
  rule.candidate = candidate, rule.reference = reference;
  return rule;
}

// As a recorder does: equal bytes, equal checksums.
const RunMaker& with_checksums(RunMaker& maker) {
  for (RecordedTensor& record : maker.run.records)
    record.checksum = checksum_text(record.load().contiguous().contiguous_bytes());
  return maker;
}

TEST(GraphPrograms, StreamsAndLayersOfOneInputComeInAnyOrder) {
  const Values image = noise({24, kGraphWidth}, 1), text = noise({13, kGraphWidth}, 2);
  const Values other_image = noise({24, kGraphWidth}, 3), other_text = noise({13, kGraphWidth}, 4);
  RunMaker a, b;
  a.in("net.block.to_q", image).add("net.block.to_q", doubled(image));
  a.in("net.block.to_v", image).add("net.block.to_v", doubled(image));
  a.in("net.block.add_v", text).add("net.block.add_v", doubled(text));
  a.in("net.block.norm", doubled(image)).add("net.block.norm", image).add("net.block", image);
  b.in("net.block.add_v", other_text).add("net.block.add_v", doubled(other_text));
  b.in("net.block.to_v", other_image).add("net.block.to_v", doubled(other_image));
  b.in("net.block.norm", doubled(other_image)).add("net.block.norm", other_image);
  b.in("net.block.to_q", other_image).add("net.block.to_q", doubled(other_image)).add("net.block", other_image);
  const Comparison result = compared(with_checksums(a), with_checksums(b));
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(result.first->stage, "net.block.to_q");
}

// The other of two alike was applied: that one says nothing of this.
TEST(GraphPrograms, OneOfTwoActivationsOfTheSameTensorIsMissing) {
  auto weights = std::make_shared<MemoryWeights>();
  const Values time = noise({6, kGraphWidth}, 1), active = mapped(time, silu);
  for (const char* name : {"net.image.1", "net.text.1"})
    weights->add(name + std::string(".weight"), noise({6 * kGraphWidth, kGraphWidth}, static_cast<unsigned>(name[4])));
  const auto layer = [&](const char* name, const Values& x) {
    return product_of(x, *weights->find(name + std::string(".weight")));
  };
  RunMaker a, b;
  for (const char* stream : {"net.image", "net.text"}) {
    const std::string act = stream + std::string(".0"), mod = stream + std::string(".1");
    a.in(act, time).add(act, active).in(mod, active).add(mod, layer(mod.c_str(), active));
  }
  b.in("net.image.1", active).add("net.image.1", layer("net.image.1", active));
  b.in("net.text.0", time).add("net.text.1", layer("net.text.1", time));
  EXPECT_EQ(first_cause(with_checksums(a), with_checksums(b), weights), "activation.missing");
}

TEST(GraphPrograms, FrequenciesOfTheTimeAreFoundThroughTheLayerBehindThem) {
  constexpr size_t kHalf = 16;
  auto weights = std::make_shared<MemoryWeights>();
  weights->add("net.time.linear.weight", noise({kGraphWidth, 2 * kHalf}, 1));
  Values time = make_values({1});
  time.v[0] = 0.75f;
  const auto features = [&](double theta, double last) {
    Values out = make_values({1, 2 * kHalf});
    for (size_t i = 0; i < kHalf; ++i) {
      const double angle = 1000 * time.v[0] * std::pow(theta, -static_cast<double>(i) / (kHalf - last));
      out.v[i] = static_cast<float>(std::cos(angle)), out.v[kHalf + i] = static_cast<float>(std::sin(angle));
    }
    return out;
  };
  const auto cause = [&](double theta, double last) {
    const auto through = [&](const Values& x) { return product_of(x, *weights->find("net.time.linear.weight")); };
    RunMaker a, b;
    a.in("net.time.features", time).add("net.time.features", features(1e4, 0));
    a.in("net.time.linear", features(1e4, 0)).add("net.time.linear", through(features(1e4, 0)));
    b.add("net.time.linear", through(features(theta, last)));
    return first_cause(with_checksums(a), with_checksums(b), weights);
  };
  EXPECT_EQ(cause(1e3, 0), "timestep.theta");
  EXPECT_EQ(cause(1e4, 1), "timestep.theta");
}

// The places in a patch before the channels, seen only behind the layer that takes the tokens.
TEST(GraphPrograms, AnotherOrderInThePatchIsFoundThroughTheLayerBehindIt) {
  auto weights = std::make_shared<MemoryWeights>();
  weights->add("net.first.weight", noise({6, 16}, 1));  // fewer outputs than inputs: these do not follow from those
  const Values latents = noise({24, 16}, 2);
  Values moved = latents;
  for (int64_t token = 0; token < 24; ++token)
    for (size_t i = 0; i < 16; ++i) moved.row(token)[i] = latents.row(token)[i % 4 * 4 + i / 4];
  const auto through = [&](const Values& x) { return product_of(x, *weights->find("net.first.weight")); };
  RunMaker a, b;
  a.add("latents", latents, Role::kCheckpoint).in("net.first", latents).add("net.first", through(latents));
  b.add("tokens", through(moved), Role::kCheckpoint);
  CompareOptions options;
  options.weights_reference = weights;
  options.map = {rule_of("tokens", "net.first")};
  EXPECT_EQ(first_cause(compare_runs(with_checksums(a).run, with_checksums(b).run, options)), "layout.packing");
}

}  // namespace
}  // namespace lockstep
