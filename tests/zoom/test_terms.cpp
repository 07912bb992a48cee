#include <set>

#include "zoom/program.h"

namespace lockstep::zoom {
namespace {

// x + time + text for every token; or the two put together first, and given an axis for the tokens then.
Side conditioned(const std::string& file, bool together, double factor) {
  Program p(file);
  const int x = p.leaf(Origin::kInput, "x", {3, 4, 8}, 1), condition = p.leaf(Origin::kInput, "condition", {3, 8}, 2);
  const int w1 = p.leaf(Origin::kParameter, "w1", {8, 8}, 3), w2 = p.leaf(Origin::kParameter, "w2", {8, 8}, 4);
  const int time = p.operation(2, "linear", {{"input", condition}, {"weight", w1}});
  int text = p.operation(3, "linear", {{"input", condition}, {"weight", w2}});
  if (factor != 1) text = p.operation(4, "tanh", {{"input", text}});
  if (together) {
    const int both = p.operation(5, "add", {{"input", time}, {"other", text}});
    return p.result(p.operation(6, "add", {{"input", x}, {"other", p.reshaped(6, "unsqueeze", both, {3, 1, 8})}}));
  }
  const int first = p.operation(5, "add", {{"input", x}, {"other", p.reshaped(5, "unsqueeze", time, {3, 1, 8})}});
  return p.result(p.operation(6, "add", {{"input", first}, {"other", p.reshaped(6, "unsqueeze", text, {3, 1, 8})}}));
}

TEST(ZoomTerms, ASumThatWasGivenAnAxisIsStillASum) {
  Side reference = conditioned("reference.py", false, 1), right = conditioned("yours.py", true, 1);
  EXPECT_TRUE(search(reference, right).agrees);
  Side again = conditioned("reference.py", false, 1), wrong = conditioned("yours.py", true, 2);
  EXPECT_EQ(lines_named_for(again, wrong), std::set<int>{4});
}

// Times the same number everywhere: as an array, or as it is.
TEST(ZoomTerms, AnArrayOfOneNumberIsThatNumber) {
  const auto program = [](const std::string& file, bool as_array, float time) {
    Program p(file);
    const int frequencies = p.leaf(Origin::kInput, "frequencies", {4, 8}, 1);
    if (!as_array) return p.result(p.operation(3, "mul", {{"input", frequencies}}, {{"other", time}}));
    const int times = p.result_of(2, "full", {}, {{4, 1}, std::vector<float>(4, time)});
    return p.result(p.operation(3, "mul", {{"input", times}, {"other", frequencies}}));
  };
  Side reference = program("reference.py", false, 3), right = program("yours.py", true, 3);
  EXPECT_TRUE(search(reference, right).agrees);
  Side again = program("reference.py", false, 3), wrong = program("yours.py", true, 2.5);
  const Answer answer = search(again, wrong);
  ASSERT_EQ(answer.regions.size(), 1U);
  EXPECT_EQ(answer.regions[0].kind, Kind::kArgument);
  ASSERT_EQ(answer.regions[0].arguments.size(), 1U);
  EXPECT_EQ(answer.regions[0].arguments[0].yours, "2.5");
  EXPECT_EQ(answer.regions[0].arguments[0].reference, "3");
  Side third = program("reference.py", false, 3), once_more = program("yours.py", true, 2.5);
  EXPECT_EQ(lines_named_for(third, once_more), (std::set<int>{2, 3}));
}

// x + step * v twice, or x - (-step) * v; the first v is of another kind where it is wrong.
Side two_steps(const std::string& file, double step, bool wrong) {
  Program p(file);
  const int x = p.leaf(Origin::kInput, "x", {4, 8}, 1);
  const int w1 = p.leaf(Origin::kParameter, "w1", {8, 8}, 2), w2 = p.leaf(Origin::kParameter, "w2", {8, 8}, 3);
  int h = x;
  for (int i = 0; i < 2; ++i) {
    const int line = 10 * (i + 1);
    const int flow = p.operation(line, "linear", {{"input", x}, {"weight", i == 0 ? w1 : w2}});
    const int v = p.operation(line + 1, wrong && i == 0 ? "sigmoid" : "tanh", {{"input", flow}});
    const int change = p.operation(line + 2, "mul", {{"input", v}}, {{"other", step}});
    h = p.operation(line + 3, step < 0 ? "add" : "sub", {{"input", h}, {"other", change}});
  }
  return p.result(h);
}

TEST(ZoomTerms, WhatOneSideSubtractsTheOtherMayAddWithTheOtherSign) {
  Side reference = two_steps("reference.py", -0.25, false), right = two_steps("yours.py", 0.25, false);
  EXPECT_TRUE(search(reference, right).agrees);
  Side again = two_steps("reference.py", -0.25, false), wrong = two_steps("yours.py", 0.25, true);
  EXPECT_EQ(lines_named_for(again, wrong), std::set<int>{11});
}

}  // namespace
}  // namespace lockstep::zoom
