// Latents as tokens: every order of what a patch is made of, and statistics that are given to the wrong of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

// Two items of 3 x 4 patches of 5 channels: no two factors but those of the patch are alike.
const Shape kFactors{2, 3, 4, 5, 2, 2};

RunMaker with_latents(const Values& packed, const std::string& name = "initial_latents_packed") {
  RunMaker out;
  return out.add(name, packed, Role::kCheckpoint).in("net.in", packed);
}

TEST(Packing, EveryOrderIsNamed) {
  const Values x = noise({2, 12, 20}, 1);
  std::vector<int> order{1, 2, 3, 4, 5};
  while (std::next_permutation(order.begin(), order.end())) {
    std::vector<int> axes{0};
    axes.insert(axes.end(), order.begin(), order.end());
    const Values y = reshaped(permuted(reshaped(x, kFactors), axes), x.shape);
    EXPECT_EQ(first_cause(with_latents(x), with_latents(y)), "layout.packing") << ::testing::PrintToString(order);
  }
}

TEST(Packing, OtherMovesAndOtherTensorsAreNot) {
  const Values x = noise({2, 12, 20}, 1);
  Values rolled = x;
  for (size_t item = 0; item < 2; ++item)
    std::rotate(rolled.v.begin() + static_cast<int64_t>(item * 240),
                rolled.v.begin() + static_cast<int64_t>(item * 240 + 60),
                rolled.v.begin() + static_cast<int64_t>(item * 240 + 240));
  EXPECT_EQ(first_cause(with_latents(x), with_latents(rolled)), "layout.rolled");
  const Values inside = reshaped(permuted(reshaped(x, kFactors), {0, 1, 2, 4, 3, 5}), x.shape);
  EXPECT_NE(first_cause(with_latents(x, "prompt_embeds"), with_latents(inside, "prompt_embeds")), "layout.packing");
}

// z * std + mean, unpacked; `places` says whose statistics the number at [channel, y, x] gets.
struct Denormalised {
  Values z = noise({1, 12, 20}, 2);
  static float std_of(size_t k) { return 0.6f + 0.35f * static_cast<float>(k); }
  static float mean_of(size_t k) { return 0.4f - 0.21f * static_cast<float>(k); }

  template <typename Places>
  RunMaker run(const Places& places, const std::vector<int>& axes = {2, 0, 3, 1, 4}) const {
    Values y = reshaped(permuted(reshaped(z, {3, 4, 5, 2, 2}), axes), {1, 5, 1, 6, 8});
    for (size_t i = 0; i < y.v.size(); ++i) {
      const size_t k = places(i / 48, i % 48 / 8, i % 8);
      if (k < 5) y.v[i] = y.v[i] * std_of(k) + mean_of(k);
    }
    RunMaker out;
    return out.add("latents", z, Role::kCheckpoint, 0).add("latents_denormalized", y, Role::kCheckpoint);
  }
};

TEST(Packing, StatisticsInTheWrongPlaces) {
  const Denormalised latents;
  const auto own = [](size_t c, size_t, size_t) { return c; };
  const RunMaker right = latents.run(own);
  const auto says = [&](const auto& places, const std::string& cause, const std::string& words) {
    const Comparison result = compared(right, latents.run(places));
    EXPECT_EQ(first_cause(result), cause);
    if (!result.causes.empty()) {
      EXPECT_NE(result.causes[0].explanation.find(words), std::string::npos) << result.causes[0].explanation;
    }
  };
  says([](size_t c, size_t y, size_t x) { return (c * 4 + y % 2 * 2 + x % 2) % 5; }, "latents.statistics",
       "four times over");
  says([](size_t c, size_t y, size_t x) { return (c + y % 2 + x % 2) % 5; }, "latents.statistics", "along a token");
  says([](size_t c, size_t, size_t) { return 4 - c; }, "latents.statistics", "of other channels: 4, 3, 2, 1, 0");
  says([](size_t, size_t y, size_t) { return y % 5; }, "latents.statistics", "each row");
  says([](size_t, size_t, size_t x) { return x % 5; }, "latents.statistics", "each column");
  says([](size_t c, size_t, size_t) { return c < 2 ? size_t{9} : c; }, "latents.not_denormalised", "0, 1");
  for (const std::vector<int>& axes :
       {std::vector<int>{2, 0, 3, 4, 1}, {2, 3, 0, 4, 1}, {3, 4, 2, 0, 1}, {2, 1, 4, 0, 3}})
    EXPECT_EQ(first_cause(right, latents.run(own, axes)), "layout.packing");
}

// Values of a token taken for [row, column, channel] where they are [channel, row, column], and the like.
TEST(Packing, TokensReadInAnotherOrder) {
  const Denormalised latents;
  const auto own = [](size_t c, size_t, size_t) { return c; };
  const RunMaker right = latents.run(own);
  for (const auto& [seen, back] : {std::pair{Shape{3, 4, 2, 2, 5}, std::vector<int>{4, 0, 2, 1, 3}},
                                   {Shape{3, 4, 2, 2, 5}, {4, 0, 3, 1, 2}},
                                   {Shape{3, 4, 2, 5, 2}, {3, 0, 2, 1, 4}},
                                   {Shape{4, 3, 5, 2, 2}, {2, 1, 3, 0, 4}}}) {
    Denormalised other = latents;
    other.z = reshaped(permuted(reshaped(latents.z, seen), back), {1, 5, 1, 6, 8});
    // Denormalised::run unpacks what it is given: hand it the packed form of the wrongly unpacked picture.
    other.z = reshaped(permuted(reshaped(other.z, {5, 3, 2, 4, 2}), {1, 3, 0, 2, 4}), {1, 12, 20});
    RunMaker wrong;
    wrong.add("latents", latents.z, Role::kCheckpoint, 0)
        .add("latents_denormalized", values_from(other.run(own).run.records[1].load()), Role::kCheckpoint);
    EXPECT_EQ(first_cause(right, wrong), "layout.packing") << to_string(seen);
  }
}

}  // namespace
}  // namespace lockstep
