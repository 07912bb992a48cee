// Two norms of one block that were loaded in each other's places, weights and biases.
#include <gtest/gtest.h>

#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

Values layer_normed(const Values& x, const Values& weight, const Values& bias) {
  Values out = x;
  const double n = static_cast<double>(x.last());
  for (int64_t row = 0; row < x.rows(); ++row) {
    double sum = 0, squares = 0;
    for (const float v : x.row(row)) sum += v;
    for (const float v : x.row(row)) squares += (v - sum / n) * (v - sum / n);
    for (size_t i = 0; i < out.row(row).size(); ++i)
      out.row(row)[i] =
          static_cast<float>((x.row(row)[i] - sum / n) / std::sqrt(squares / n + 1e-5) * weight.v[i] + bias.v[i]);
  }
  return out;
}

TEST(ExchangedNorms, AnotherNormsWeightIsFoundWithItsBias) {
  const Values x = noise({1, 24, 48}, 1), b = noise({48}, 2, 0.3f), other_b = noise({48}, 3, 0.3f);
  const auto near_one = [](unsigned seed) { return mapped(noise({48}, seed, 0.3f), [](double v) { return 1 + v; }); };
  const Values w = near_one(4), other_w = near_one(5);
  auto weights = std::make_shared<MemoryWeights>();
  weights->add("net.norm1.weight", w), weights->add("net.norm1.bias", b);
  weights->add("net.norm2.weight", other_w), weights->add("net.norm2.bias", other_b);
  const auto result = [&](const Values& wrong) {
    RunMaker reference, candidate;
    reference.in("net.norm1", x).add("net.norm1", layer_normed(x, w, b));
    candidate.in("net.norm1", x).add("net.norm1", wrong);
    return compared(reference, candidate, weights);
  };
  for (const Values& bias : {b, other_b})
    EXPECT_EQ(first_cause(result(layer_normed(x, other_w, bias))), "norm.other_weight");
  const Comparison both = result(layer_normed(x, other_w, other_b));
  ASSERT_FALSE(both.causes.empty());
  EXPECT_NE(both.causes[0].fix.find("net.norm2.weight and its bias"), std::string::npos) << both.causes[0].fix;
  for (const auto& cause : both.causes)
    EXPECT_EQ(cause.explanation.find("none of the checkpoint's"), std::string::npos) << cause.explanation;
}

}  // namespace
}  // namespace lockstep
