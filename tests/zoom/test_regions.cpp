#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

#include "zoom/program.h"

namespace lockstep::zoom {
namespace {

// x + layer(x), then the same again; the layer's bias inside it or added by itself.
Side residual_twice(const std::string& file, bool bias_apart, bool first_residual) {
  Program p(file);
  const int x = p.leaf(Origin::kInput, "x", {5, 16}, 1);
  int h = x;
  for (int layer = 0; layer < 2; ++layer) {
    const int weight = p.leaf(Origin::kParameter, "w", {16, 16}, 2 + static_cast<unsigned>(layer)),
              bias = p.leaf(Origin::kParameter, "b", {16}, 4 + static_cast<unsigned>(layer));
    const int line = 10 * (layer + 1);
    int made = -1;
    if (bias_apart) {
      made = p.operation(line, "linear", {{"input", h}, {"weight", weight}});
      made = p.operation(line + 1, "add", {{"input", made}, {"other", bias}});
    } else {
      made = p.operation(line, "linear", {{"input", h}, {"weight", weight}, {"bias", bias}});
    }
    h = layer > 0 || first_residual ? p.operation(line + 2, "add", {{"input", h}, {"other", made}}) : made;
  }
  return p.result(h);
}

TEST(ZoomRegions, AResidualIsMissedThoughABiasIsAddedByItself) {
  Side reference = residual_twice("reference.py", false, true), right = residual_twice("yours.py", true, true);
  EXPECT_TRUE(search(reference, right).agrees);
  Side again = residual_twice("reference.py", false, true), wrong = residual_twice("yours.py", true, false);
  const Answer answer = search(again, wrong);
  ASSERT_FALSE(answer.regions.empty());
  EXPECT_TRUE(std::any_of(answer.regions.begin(), answer.regions.end(), [](const Region& region) {
    return region.kind == Kind::kMissingStep && region.note.find("x") != std::string::npos;
  }));
}

// tanh of a, b and c put together in a way that the other side's cannot be narrowed to: three values go in.
Side three_into_one(const std::string& file, int third, bool other_form) {
  Program p(file);
  const int x = p.leaf(Origin::kInput, "x", {6, 8}, 1);
  std::vector<int> made;
  for (int i = 0; i < 3; ++i) {
    const int which = i == 2 ? third : i;
    const int weight = p.leaf(Origin::kParameter, "w", {8, 8}, 2 + static_cast<unsigned>(which));
    made.push_back(p.operation(10 + i, "linear", {{"input", x}, {"weight", weight}}));
  }
  if (!other_form) {
    const int scores = p.operation(
        20, "softmax", {{"input", p.operation(20, "mul", {{"input", made[0]}, {"other", made[1]}})}}, {{"dim", -1}});
    return p.result(
        p.operation(21, "exp", {{"input", p.operation(21, "mul", {{"input", scores}, {"other", made[2]}})}}));
  }
  const int product = p.operation(20, "mul", {{"input", made[0]}, {"other", made[1]}});
  const int raised = p.operation(20, "exp", {{"input", product}});
  const int share = p.operation(
      21, "mul",
      {{"input", raised},
       {"other",
        p.operation(21, "reciprocal",
                    {{"input", p.operation(21, "sum", {{"input", raised}}, {{"dim", -1}, {"keepdim", true}})}})}});
  const int one = p.operation(22, "exp", {{"input", p.operation(22, "mul", {{"input", share}, {"other", made[2]}})}});
  return p.result(p.operation(23, "relu", {{"input", one}}));
}

TEST(ZoomRegions, AValueTakenTwiceStandsInThePlaceOfAnother) {
  Side reference = three_into_one("reference.py", 2, false), right = three_into_one("yours.py", 2, true);
  EXPECT_TRUE(search(reference, right).agrees);
  Side again = three_into_one("reference.py", 2, false), wrong = three_into_one("yours.py", 1, true);
  const Answer answer = search(again, wrong);
  ASSERT_EQ(answer.regions.size(), 1U);
  const auto lines = yours_of(wrong, answer.regions.front());
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const Place& place) { return place.line == 12; }));
  EXPECT_LE(lines.size(), 2U);
}

TEST(ZoomRegions, ALineThatOnlyPassesAValueOnBelongsToTheAnswer) {
  std::string file = (fs::temp_directory_path() / "zoom-XXXXXX.py").string();
  const int descriptor = mkstemps(file.data(), 3);
  ASSERT_GE(descriptor, 0);
  close(descriptor);
  write_atomically(file, "gate = x @ w\ns = sigmoid(gate)\ngate = s\n# gate = s\nreturn gate * x\n");
  const auto program = [&](const std::string& source, bool wrong) {
    Program p(source);
    const int x = p.leaf(Origin::kInput, "x", {6, 8}, 1), w = p.leaf(Origin::kParameter, "w", {8, 8}, 2);
    const int gate = p.operation(1, "linear", {{"input", x}, {"weight", w}});
    const int s = p.operation(2, wrong ? "sigmoid" : "silu", {{"input", gate}});
    return p.result(p.operation(5, "mul", {{"input", s}, {"other", x}}));
  };
  Side reference = program("reference.py", false), yours = program(file, true);
  const Answer answer = search(reference, yours);
  fs::remove(file);
  ASSERT_EQ(answer.regions.size(), 1U);
  std::vector<int> lines;
  for (const Place& place : yours_of(yours, answer.regions.front())) lines.push_back(place.line);
  EXPECT_EQ(lines, (std::vector<int>{2, 3}));
}

}  // namespace
}  // namespace lockstep::zoom
