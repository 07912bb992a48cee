#include <gtest/gtest.h>

#include <cmath>

#include "zoom/einsum.h"
#include "zoom/moves.h"
#include "zoom/program.h"

namespace lockstep::zoom {
namespace {

TEST(Einsum, SumsOverTheLettersThatAreNotAskedFor) {
  const Numbers a{{2, 3}, {1, 2, 3, 4, 5, 6}}, b{{2, 3}, {1, 0, 1, 0, 1, 0}};
  EXPECT_EQ(einsum("ik,jk->ij", {&a, &b})->values, (std::vector<float>{4, 2, 10, 5}));
  EXPECT_EQ(einsum("ij->ji", {&a})->values, (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(einsum("ij,ij", {&a, &b})->values, (std::vector<float>{9}));
  EXPECT_FALSE(einsum("ijk->i", {&a}).has_value());
  EXPECT_FALSE(einsum("ij,jk->ik", {&a, &b}).has_value());
  EXPECT_FALSE(einsum("...j->j", {&a}).has_value());
}

// A copy that only moved elements is repeated on other elements, without a word about what kind of step it was.
TEST(Moves, ACopyIsKnownByItsValues) {
  Tape tape;
  tape.values.push_back({Origin::kInput, "x", Tensor::from<float>({4}, {1, 2, 3, 4}), {4}, -1, -1, false, false});
  tape.values.push_back({Origin::kResult, "", Tensor::from<float>({5}, {0, 4, 3, 2, 1}), {5}, 0, -1, false, false});
  Step step;
  step.kind = "flipped_and_padded";
  step.operands = {{"input", 0}};
  step.outputs = {1};
  tape.steps.push_back(step);
  const Side side(tape);
  const auto made = replay(side, 1, 0, std::make_shared<Numbers>(Numbers{{4}, {10, 20, 30, 40}}));
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->values, (std::vector<float>{0, 40, 30, 20, 10}));
}

// Two halves exchanged by slices and a join are one value moved about.
TEST(Moves, SlicesAndJoinsOfOneValueAreFollowedToIt) {
  Program p("moves.py");
  const int x = p.leaf(Origin::kInput, "x", {4, 6}, 1), y = p.leaf(Origin::kInput, "y", {4, 6}, 2);
  const int sum = p.operation(1, "add", {{"input", x}, {"other", y}});
  const int joined = p.operation(2, "concatenate", {{"tensors.0", sum}, {"tensors.1", sum}}, {{"dim", 0}});
  const int both = p.operation(3, "concatenate", {{"tensors.0", x}, {"tensors.1", y}}, {{"dim", 0}});
  const int turned = p.operation(4, "concatenate", {{"tensors.0", sum}}, {{"dim", 0}});
  const Side side = p.result(turned);
  std::vector<int> steps;
  EXPECT_EQ(moved_from(side, turned, steps), sum);
  EXPECT_EQ(steps.size(), 1U);
  EXPECT_EQ(moved_from(side, joined, steps), -1);  // twice as many elements
  EXPECT_EQ(moved_from(side, both, steps), -1);    // two sources
}

TEST(Evaluate, ANormIsALengthUnlessItsPowerIsAnother) {
  Program p("norm.py");
  const int x = p.leaf(Origin::kInput, "x", {2, 3}, 1);
  const int length = p.operation(1, "norm", {{"input", x}}, {{"dim", -1}});
  const std::vector<float> of = p.numbers(x).values;
  EXPECT_NEAR(p.numbers(length).values[0], std::sqrt(of[0] * of[0] + of[1] * of[1] + of[2] * of[2]), 1e-6);
  Side side = p.result(length);
  Step other = side.step(0);
  other.arguments["p"] = 1;
  EXPECT_FALSE(evaluate(side, other, length, [&](int value) { return side.numbers(value); }).has_value());
}

TEST(Evaluate, AnInfiniteArgumentIsAWord) {
  Program p("mask.py");
  const int x = p.leaf(Origin::kInput, "x", {3}, 1);
  const int mask = p.result_of(1, "ge", {}, {{3}, {0, 1, 0}});
  const std::vector<float> masked =
      p.numbers(p.operation(2, "masked_fill", {{"input", x}, {"mask", mask}}, {{"value", "-inf"}})).values;
  EXPECT_TRUE(std::isinf(masked[1]) && masked[1] < 0);
  EXPECT_EQ(masked[2], p.numbers(x).values[2]);
}

// Rows taken by an index can be taken of other values, unless the index is what changed.
TEST(Evaluate, RowsAreTakenByTheSameIndex) {
  Program p("rows.py");
  const int x = p.leaf(Origin::kInput, "x", {3, 2}, 1), index = p.result_of(1, "arange", {}, {{2}, {2, 0}});
  const std::vector<float> of = p.numbers(x).values;
  const int rows = p.result_of(2, "getitem", {{"input", x}, {"index", index}}, {{2, 2}, {of[4], of[5], of[0], of[1]}});
  const Side side = p.result(rows);
  const auto other = std::make_shared<Numbers>(Numbers{{3, 2}, {1, 2, 3, 4, 5, 6}});
  const auto made = replay(side, rows, x, other);
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->values, (std::vector<float>{5, 6, 1, 2}));
  EXPECT_FALSE(replay(side, rows, index, std::make_shared<Numbers>(Numbers{{2}, {1, 0}})).has_value());
}

}  // namespace
}  // namespace lockstep::zoom
