#include <algorithm>
#include <set>

#include "zoom/arithmetic.h"
#include "zoom/program.h"

namespace lockstep::zoom {
namespace {

// A function that is called twice, of the reference and of yours.
using Function = int (*)(Program& p, int x);

int tanh_of(Program& p, int x) {
  return p.operation(5, "tanh", {{"input", x}});
}

// The same by exp, with a factor of its own.
template <int kTenths>
int by_exp(Program& p, int x) {
  const int raised =
      p.operation(4, "exp", {{"input", p.operation(3, "mul", {{"input", x}}, {{"other", kTenths / 10.0}})}});
  const int above = p.operation(5, "sub", {{"input", raised}}, {{"other", 1.0}}),
            below = p.operation(5, "add", {{"input", raised}}, {{"other", 1.0}});
  return p.operation(5, "div", {{"input", above}, {"other", below}});
}

// Two products in one line, of which the second is the result.
int quick_gelu(Program& p, int x) {
  const int share = p.operation(5, "sigmoid", {{"input", p.operation(5, "mul", {{"input", x}}, {{"other", 1.702}})}});
  return p.operation(5, "mul", {{"input", x}, {"other", share}});
}

int silu(Program& p, int x) {
  return p.operation(5, "silu", {{"input", x}});
}

// The products of all pairs of rows of f(x) and f(linear(f(x))), as a product of matrices or as a sum.
Side two_calls(const std::string& file, Function function, bool rewritten) {
  Program p(file);
  const int x = p.leaf(Origin::kInput, "x", {4, 8}, 1), w = p.leaf(Origin::kParameter, "w", {8, 8}, 2);
  p.in_call_of(11);
  const int first = function(p, x);
  p.in_call_of(0);
  const int between = p.operation(12, "linear", {{"input", first}, {"weight", w}});
  p.in_call_of(13);
  const int second = function(p, between);
  p.in_call_of(0);
  if (!rewritten) {
    const int turned = p.result_of(14, "transpose", {{"input", second}}, permute(p.numbers(second), {1, 0}));
    return p.result(p.operation(14, "matmul", {{"input", first}, {"other", turned}}));
  }
  const int rows = p.reshaped(14, "unsqueeze", first, {4, 1, 8}),
            columns = p.reshaped(14, "unsqueeze", second, {1, 4, 8});
  return p.result(p.operation(15, "sum", {{"input", p.operation(14, "mul", {{"input", rows}, {"other", columns}})}},
                              {{"dim", -1}}));
}

TEST(ZoomTransplants, ALineThatIsWrongEachTimeIsReplacedEachTime) {
  Side reference = two_calls("reference.py", tanh_of, false), right = two_calls("yours.py", by_exp<20>, true);
  EXPECT_TRUE(search(reference, right).agrees);
  Side again = two_calls("reference.py", tanh_of, false), wrong = two_calls("yours.py", by_exp<12>, true);
  const Answer answer = search(again, wrong);
  ASSERT_FALSE(answer.regions.empty());
  std::set<int> lines;
  for (const Region& region : answer.regions)
    for (const Place& place : yours_of(wrong, region)) lines.insert(place.line);
  EXPECT_TRUE(lines.contains(3));
  EXPECT_LE(*lines.rbegin(), 5);  // nothing outside the function
  EXPECT_EQ(answer.proof, Proof::kProven);
}

TEST(ZoomTransplants, ALineMayDoTheSameOperationSeveralTimes) {
  Side reference = two_calls("reference.py", quick_gelu, false), wrong = two_calls("yours.py", silu, true);
  EXPECT_EQ(lines_named_for(reference, wrong), std::set<int>{5});
}

// Rows put together in another order by two steps that only move elements, or by one of a kind of its own: before it
// the elements lie in no order that the other side's could be brought into.
Side put_together(const std::string& file, bool at_once, bool squashed) {
  Program p(file);
  const int x = p.leaf(Origin::kInput, "x", {4, 8}, 1), gain = p.leaf(Origin::kParameter, "gain", {8}, 2),
            w = p.leaf(Origin::kParameter, "w", {8, 8}, 3);
  int h = p.operation(2, "mul", {{"input", x}, {"other", gain}});
  if (squashed) h = p.operation(3, "tanh", {{"input", h}});
  const int made = p.operation(4, "linear", {{"input", h}, {"weight", w}});
  const Numbers turned = permute({{2, 2, 4, 2}, p.numbers(made).values}, {0, 2, 1, 3});
  if (at_once) return p.result(p.result_of(5, "fold", {{"input", made}}, {{8, 4}, turned.values}));
  const int parts = p.reshaped(5, "reshape", made, {2, 2, 4, 2});
  const int moved = p.result_of(5, "permute", {{"input", parts}}, turned);
  return p.result(p.reshaped(6, "reshape", moved, {8, 4}));
}

TEST(ZoomTransplants, WhatLiesInNoOrderOfTheOthersIsReplacedBeforeItWasMoved) {
  Side reference = put_together("reference.py", false, false), right = put_together("yours.py", true, false);
  EXPECT_TRUE(search(reference, right).agrees);
  Side again = put_together("reference.py", false, false), wrong = put_together("yours.py", true, true);
  EXPECT_EQ(lines_named_for(again, wrong), std::set<int>{3});
}

// What goes in is turned into zeros early on: zeros in a product of the reference's give zeros too, and prove nothing.
TEST(ZoomTransplants, ZerosInThePlaceOfAnotherValueProveNothing) {
  const auto program = [](const std::string& file, bool wrong) {
    Program p(file);
    const int x = p.leaf(Origin::kInput, "x", {4, 8}, 1), y = p.leaf(Origin::kInput, "y", {4, 8}, 3);
    const int state =
        wrong ? p.result_of(2, "zeros", {}, {{4, 8}, std::vector<float>(32)}) : p.operation(3, "tanh", {{"input", x}});
    if (!wrong)
      return p.result(
          p.operation(5, "sum", {{"input", p.operation(5, "mul", {{"input", state}, {"other", y}})}}, {{"dim", -1}}));
    const int product = p.result_of(4, "einsum", {{"input", state}, {"other", y}}, {{4}, std::vector<float>(4)},
                                    {{"equation", "ab,ab->a"}});
    return p.result(p.operation(4, "abs", {{"input", product}}));
  };
  Side reference = program("reference.py", false), yours = program("yours.py", true);
  const Answer answer = search(reference, yours);
  ASSERT_FALSE(answer.regions.empty());
  const auto lines = yours_of(yours, answer.regions.front());
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const Place& place) { return place.line == 4; }));
}

}  // namespace
}  // namespace lockstep::zoom
