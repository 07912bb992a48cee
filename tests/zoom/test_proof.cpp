#include <gtest/gtest.h>

#include "zoom/program.h"

namespace lockstep::zoom {
namespace {

// tanh(x @ w1) @ w2 + x; `sine`: another function in line 2, `sum`: the last line adds something else.
Side program(const std::string& file, bool sine = false, bool sum = false) {
  Program p(file);
  const int x = p.leaf(Origin::kInput, "x", {6, 16}, 1), first = p.leaf(Origin::kParameter, "first", {16, 16}, 2),
            second = p.leaf(Origin::kParameter, "second", {16, 16}, 3), y = p.leaf(Origin::kInput, "y", {6, 16}, 4);
  int h = p.operation(1, "linear", {{"input", x}, {"weight", first}});
  h = p.operation(2, sine ? "sin" : "tanh", {{"input", h}});
  h = p.operation(3, "linear", {{"input", h}, {"weight", second}});
  return p.result(p.operation(4, "add", {{"input", sum ? y : x}, {"other", h}}));
}

std::vector<std::pair<int, int>> outputs_of(const Side& reference, const Side& yours) {
  return {{yours.tape().outputs[0].second, reference.tape().outputs[0].second}};
}

constexpr double kEnough = 1e9;

TEST(Proof, AnAnswerThatExplainsTheWholeDifferenceIsProven) {
  Side reference = program("reference.py"), yours = program("yours.py", true);
  const Answer answer = search(reference, yours);
  ASSERT_EQ(answer.regions.size(), 1U);
  EXPECT_EQ(answer.proof, Proof::kProven);
}

TEST(Proof, TwoMistakesAreProvenTogetherAndNoneOfThemAlone) {
  Side reference = program("reference.py"), yours = program("yours.py", true, true);
  const Answer answer = search(reference, yours);
  ASSERT_EQ(answer.regions.size(), 2U);
  EXPECT_EQ(answer.proof, Proof::kProven);
  for (const Region& region : answer.regions)
    EXPECT_EQ(prove({region}, reference, yours, outputs_of(reference, yours), 1e-4, kEnough), Proof::kRefuted);
}

TEST(Proof, WithoutTheWorkForItNothingIsProvenAndNothingRefuted) {
  Side reference = program("reference.py"), yours = program("yours.py", true);
  const Answer answer = search(reference, yours);
  EXPECT_EQ(prove(answer.regions, reference, yours, outputs_of(reference, yours), 1e-4, 10), Proof::kOpen);
}

TEST(Proof, AValueThatIsUsedTwiceMayBeWrongInOneUse) {
  const auto made = [](const std::string& file, bool wrong) {
    Program p(file);
    const int x = p.leaf(Origin::kInput, "x", {6, 16}, 1), y = p.leaf(Origin::kInput, "y", {6, 16}, 2),
              weight = p.leaf(Origin::kParameter, "w", {16, 16}, 3);
    const int h = p.operation(1, "linear", {{"input", x}, {"weight", weight}});
    const int k = p.operation(2, "tanh", {{"input", h}});
    return p.result(p.operation(3, "add", {{"input", wrong ? y : x}, {"other", k}}));
  };
  Side reference = made("reference.py", false), yours = made("yours.py", true);
  const Answer answer = search(reference, yours);
  ASSERT_EQ(answer.regions.size(), 1U);
  EXPECT_EQ(answer.regions[0].kind, Kind::kWiring);
  EXPECT_EQ(answer.proof, Proof::kProven);
}

// The code of a pipeline passes on many tensors: what follows the first that differs is its consequence.
TEST(Zoom, OfTheCodeBetweenModulesTheFirstWrongResultCounts) {
  const auto made = [](const std::string& file, bool wrong) {
    Program p(file);
    const int x = p.leaf(Origin::kInput, "x", {6, 16}, 1);
    const int first = p.operation(1, wrong ? "sin" : "tanh", {{"input", x}});
    const int second = p.operation(2, "exp", {{"input", first}});
    return p.stages({{"latents @step 0", first}, {wrong ? "other" : "between", x}, {"latents @step 1", second}});
  };
  Side reference = made("reference.py", false), yours = made("yours.py", true);
  const Answer answer = search(reference, yours);
  ASSERT_EQ(answer.regions.size(), 1U);
  EXPECT_EQ(lines_of(yours, answer.regions[0].yours, 0).front().line, 1);
}

}  // namespace
}  // namespace lockstep::zoom
