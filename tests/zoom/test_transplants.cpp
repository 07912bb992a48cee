#include <algorithm>
#include <set>

#include "zoom/arithmetic.h"
#include "zoom/program.h"

namespace lockstep::zoom {
namespace {

// tanh in a function that is called twice, in words of exp on the other side: there with a factor of its own.
int squashed(Program& p, int x, bool written_out, double factor) {
  if (!written_out) return p.operation(5, "tanh", {{"input", x}});
  const int raised = p.operation(4, "exp", {{"input", p.operation(3, "mul", {{"input", x}}, {{"other", factor}})}});
  const int above = p.operation(5, "sub", {{"input", raised}}, {{"other", 1.0}}),
            below = p.operation(5, "add", {{"input", raised}}, {{"other", 1.0}});
  return p.operation(5, "div", {{"input", above}, {"other", below}});
}

// The products of all pairs of rows of f(x) and f(linear(f(x))), as a product of matrices or as a sum.
Side two_calls(const std::string& file, bool rewritten, double factor) {
  Program p(file);
  const int x = p.leaf(Origin::kInput, "x", {4, 8}, 1), w = p.leaf(Origin::kParameter, "w", {8, 8}, 2);
  p.in_call_of(11);
  const int first = squashed(p, x, rewritten, factor);
  p.in_call_of(0);
  const int between = p.operation(12, "linear", {{"input", first}, {"weight", w}});
  p.in_call_of(13);
  const int second = squashed(p, between, rewritten, factor);
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
  Side reference = two_calls("reference.py", false, 2), right = two_calls("yours.py", true, 2);
  EXPECT_TRUE(search(reference, right).agrees);
  Side again = two_calls("reference.py", false, 2), wrong = two_calls("yours.py", true, 1.2);
  const Answer answer = search(again, wrong);
  ASSERT_FALSE(answer.regions.empty());
  std::set<int> lines;
  for (const Region& region : answer.regions)
    for (const Place& place : yours_of(wrong, region)) lines.insert(place.line);
  EXPECT_TRUE(lines.contains(3));
  EXPECT_LE(*lines.rbegin(), 5);  // nothing outside the function
  EXPECT_EQ(answer.proof, Proof::kProven);
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
