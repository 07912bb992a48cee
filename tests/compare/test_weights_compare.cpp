#include "compare/weights_compare.h"

#include <gtest/gtest.h>

#include "diagnose/weight/weight_forms.h"
#include "diagnose/weight/weight_relation.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

std::string kind_of(const WeightsComparison& result, const std::string& name) {
  for (const WeightFinding& finding : result.findings)
    if (finding.name == name) return finding.kind;
  return "";
}

MemoryWeights model() {
  MemoryWeights out;
  for (int i = 0; i < 3; ++i) {
    out.add("layers." + std::to_string(i) + ".q.weight", noise({16, 16}, static_cast<unsigned>(10 + i), 0.2f));
    out.add("layers." + std::to_string(i) + ".up.weight", noise({32, 16}, static_cast<unsigned>(20 + i), 0.2f));
  }
  return out;
}

TEST(WeightsCompare, IdenticalMatch) {
  const WeightsComparison result = compare_weights(model(), model());
  EXPECT_TRUE(result.match());
  EXPECT_EQ(result.identical, 6u);
}

TEST(WeightsCompare, FindsWhatHappenedByContent) {
  const MemoryWeights a = model();
  MemoryWeights b;
  b.add("layers.0.q.weight", permuted(*a.find("layers.0.q.weight"), {1, 0}));
  b.add("layers.1.q.weight", *a.find("layers.2.q.weight"));
  b.add("layers.2.q.weight", *a.find("layers.2.q.weight"));
  Values halves = *a.find("layers.0.up.weight");
  std::rotate(halves.v.begin(), halves.v.begin() + 16 * 16, halves.v.end());
  b.add("layers.0.up.weight", halves);
  b.add("layers.1.fc.weight", *a.find("layers.1.up.weight"));
  b.add("extra", noise({7}, 99));
  b.add("layers.2.up.weight", quantised(*a.find("layers.2.up.weight"), 8, 16, false));
  const WeightsComparison result = compare_weights(a, b);
  EXPECT_FALSE(result.match());
  EXPECT_EQ(kind_of(result, "layers.0.q.weight"), "weights.transposed");
  EXPECT_EQ(kind_of(result, "layers.1.q.weight"), "other_layer");
  EXPECT_EQ(kind_of(result, "layers.0.up.weight"), "weights.parts_exchanged");
  EXPECT_EQ(kind_of(result, "layers.1.up.weight"), "renamed");
  EXPECT_EQ(kind_of(result, "extra"), "unused");
  EXPECT_EQ(kind_of(result, "layers.2.up.weight"), "weights.quantised");
}

TEST(WeightsCompare, MissingIsSaid) {
  MemoryWeights b;
  b.add("layers.0.q.weight", *model().find("layers.0.q.weight"));
  EXPECT_EQ(kind_of(compare_weights(model(), b), "layers.1.q.weight"), "missing");
}

TEST(WeightRelation, OtherFormsAndMemory) {
  const Values w = noise({64, 48}, 5, 0.1f);
  Values late = w, five_bits = quantised(w, 5, 48, false);
  std::rotate(late.v.begin(), late.v.begin() + 8, late.v.end());
  EXPECT_EQ(relate_weights("w", late, w).id.id(), "weights.rearranged");
  EXPECT_EQ(relate_weights("w", late, w).words, "W read 8 elements too late");
  EXPECT_EQ(relate_weights("w", five_bits, w).id.id(), "weights.quantised");
  const Values other_half =
      mapped(w, [](double v) { return float_from(Half{bfloat16_from(static_cast<float>(v)).bits}); });
  EXPECT_EQ(relate_weights("w", other_half, w).words, "W's bfloat16 bits read as float16");
  Values tiles = w;
  for (int64_t j = 0; j < 64; ++j)
    for (int64_t i = 0; i < 48; ++i)
      tiles.row(j)[static_cast<size_t>(i)] = w.row(j / 16 * 16 + i % 16)[static_cast<size_t>(i / 16 * 16 + j % 16)];
  EXPECT_EQ(relate_weights("w", tiles, w).id.id(), "weights.transposed");
}

TEST(WeightRelation, DefaultInitialisationIsRecognised) {
  Values c = make_values({64, 64});
  std::mt19937 engine(3);
  std::uniform_real_distribution<float> uniform(-0.125f, 0.125f);
  for (float& value : c.v) value = uniform(engine);
  const WeightRelation relation = relate_weights("w", c, noise({64, 64}, 4, 0.125f));
  EXPECT_EQ(relation.id.id(), "weights.random");
  EXPECT_NE(relation.words.find("default initialisation"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
