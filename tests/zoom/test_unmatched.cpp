#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <set>

#include "zoom/frames.h"
#include "zoom/program.h"

namespace lockstep::zoom {
namespace {

std::set<int> lines_of_answer(const Answer& answer, const Side& yours) {
  std::set<int> out;
  for (const Region& region : answer.regions)
    for (const Place& place : yours_of(yours, region)) out.insert(place.line);
  return out;
}

// x / rms(x) * gain through a layer; or x / |x|, its length put right or not, with the gain in the layer's weight.
Side normed_head(const std::string& file, bool folded, bool lengthened) {
  Program p(file);
  const int x = p.leaf(Origin::kInput, "x", {6, 16}, 1), gain = p.leaf(Origin::kParameter, "gain", {16}, 2),
            weight = p.leaf(Origin::kParameter, "head.weight", {10, 16}, 3);
  if (folded) {
    const int both = p.operation(1, "mul", {{"input", weight}, {"other", gain}});
    int unit = p.operation(2, "normalize", {{"input", x}}, {{"dim", -1}});
    if (lengthened) unit = p.operation(3, "mul", {{"input", unit}}, {{"other", 4.0}});
    return p.result(p.operation(4, "linear", {{"input", unit}, {"weight", both}}));
  }
  const int squares =
      p.operation(11, "mean", {{"input", p.operation(11, "square", {{"input", x}})}}, {{"dim", -1}, {"keepdim", true}});
  const int normed = p.operation(12, "mul", {{"input", x}, {"other", p.operation(12, "rsqrt", {{"input", squares}})}});
  const int scaled = p.operation(13, "mul", {{"input", gain}, {"other", normed}});
  return p.result(p.operation(14, "linear", {{"input", scaled}, {"weight", weight}}));
}

TEST(ZoomUnmatched, AGainMayBeInTheWeightOfTheNextLayer) {
  Side reference = normed_head("reference.py", false, true), right = normed_head("yours.py", true, true);
  EXPECT_TRUE(search(reference, right).agrees);
  Side again = normed_head("reference.py", false, true), wrong = normed_head("yours.py", true, false);
  const Answer answer = search(again, wrong);
  ASSERT_EQ(answer.regions.size(), 1U);
  EXPECT_EQ(lines_of_answer(answer, wrong), std::set<int>{2});
  EXPECT_NE(answer.regions[0].note.find("0.25 times"), std::string::npos) << answer.regions[0].note;
  EXPECT_EQ(answer.proof, Proof::kProven);
}

// x + w * (x * share), where a share of the whole is 1 if the whole is taken for each part.
Side shares(const std::string& file, int axis, bool in_one_step) {
  Program p(file);
  const Json over{{"dim", axis}, {"keepdim", true}}, last{{"dim", -1}, {"keepdim", true}};
  const int x = p.leaf(Origin::kInput, "x", {9, 16}, 1), w = p.leaf(Origin::kParameter, "w", {16}, 2);
  const int energy = p.operation(
      1, "sqrt", {{"input", p.operation(1, "sum", {{"input", p.operation(1, "square", {{"input", x}})}}, over)}});
  const int all =
      p.operation(2, "add", {{"input", p.operation(2, "mean", {{"input", energy}}, last)}}, {{"other", 1e-6}});
  const int share = p.operation(2, "div", {{"input", energy}, {"other", all}});
  const int shared = p.operation(3, "mul", {{"input", x}, {"other", share}});
  const int gained = p.operation(in_one_step ? 3 : 4, "mul", {{"input", w}, {"other", shared}});
  return p.result(p.operation(in_one_step ? 3 : 4, "add", {{"input", gained}, {"other", x}}));
}

TEST(ZoomUnmatched, AFactorOfOnesHidesNoOperand) {
  Side reference = shares("reference.py", 0, false), wrong = shares("yours.py", 1, true);
  EXPECT_TRUE(lines_of_answer(search(reference, wrong), wrong).contains(1));
}

class SourceFile {
 public:
  explicit SourceFile(const std::string& text) : path_((fs::temp_directory_path() / "zoom-XXXXXX.py").string()) {
    const int descriptor = mkstemps(path_.data(), 3);
    EXPECT_GE(descriptor, 0);
    close(descriptor);
    write_atomically(path_, text);
  }
  ~SourceFile() { fs::remove(path_); }
  SourceFile(const SourceFile&) = delete;
  SourceFile& operator=(const SourceFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// x + norm(x) @ w; wrong: what is kept for the sum is the norm's result.
Side residual_of_norm(const std::string& source, bool wrong) {
  Program p(source);
  const int x = p.leaf(Origin::kInput, "x", {6, 16}, 1), w = p.leaf(Origin::kParameter, "w", {16, 16}, 2);
  const int h = p.operation(2, "layer_norm", {{"input", x}}, {{"normalized_shape", {16}}});
  const int y = p.operation(4, "linear", {{"input", h}, {"weight", w}});
  return p.result(p.operation(5, "add", {{"input", wrong ? h : x}, {"other", y}}));
}

TEST(ZoomUnmatched, ANameGivenToTheWrongValueBelongsToTheAnswer) {
  const SourceFile file("kept = x\nh = norm(x)\nkept = h\ny = h @ w\nreturn kept + y\n");
  Side reference = residual_of_norm("reference.py", false), yours = residual_of_norm(file.path(), true);
  EXPECT_TRUE(lines_of_answer(search(reference, yours), yours).contains(3));
}

TEST(ZoomUnmatched, ALineThatGivesTwoNamesBelongsToTheAnswer) {
  const SourceFile file("kept = x\nh = kept = norm(x)\n\ny = h @ w\nreturn kept + y\n");
  Side reference = residual_of_norm("reference.py", false), yours = residual_of_norm(file.path(), true);
  EXPECT_EQ(lines_of_answer(search(reference, yours), yours), (std::set<int>{2, 5}));
}

TEST(ZoomUnmatched, WhereANumberWasSetBelongsToTheAnswer) {
  const SourceFile file("scale = 1\nscale = 0.25\nq = x @ w\nreturn softmax(q * scale)\n");
  const auto program = [&](const std::string& source, double scale) {
    Program p(source);
    const int x = p.leaf(Origin::kInput, "x", {6, 16}, 1), w = p.leaf(Origin::kParameter, "w", {16, 16}, 2);
    const int q = p.operation(3, "linear", {{"input", x}, {"weight", w}});
    const int scaled = p.operation(4, "mul", {{"input", q}}, {{"other", scale}});
    return p.result(p.operation(4, "softmax", {{"input", scaled}}, {{"dim", -1}}));
  };
  Side reference = program("reference.py", 0.5), yours = program(file.path(), 0.25);
  EXPECT_EQ(lines_of_answer(search(reference, yours), yours), (std::set<int>{2, 4}));
}

TEST(ZoomFrames, TwoStepsMeetInOneExecutionOfAFunction) {
  Step norm, layer, other;
  norm.where = {{"norm.py", "Norm.forward", 7}, {"block.py", "Block.forward", 3}, {"model.py", "Model.forward", 9}};
  layer.where = {{"block.py", "Block.forward", 5}, {"model.py", "Model.forward", 9}};
  other.where = {{"block.py", "Block.forward", 5}, {"model.py", "Model.forward", 10}};
  EXPECT_EQ(meeting_frames(norm, layer), (std::pair{1, 0}));
  EXPECT_EQ(meeting_frames(norm, other), (std::pair{2, 1}));
  other.where = {{"main.py", "main", 1}};
  EXPECT_FALSE(meeting_frames(norm, other));
}

// A step that changes nothing in this call, and is wrong for that: what it gives agrees with what goes into it.
Side kept_rows(const std::string& file, bool wrong) {
  Program p(file);
  const int x = p.leaf(Origin::kInput, "x", {3, 8}, 1), y = p.leaf(Origin::kInput, "y", {2, 8}, 2);
  const int row = p.operation(3, "tanh", {{"input", x}});
  if (!wrong) {
    const int turned = p.operation(4, "mul", {{"input", row}, {"other", p.leaf(Origin::kParameter, "s", {8}, 3)}});
    return p.result(p.operation(5, "concatenate", {{"0", y}, {"1", turned}}, {{"dim", 0}}));
  }
  const int turned = p.operation(4, "add", {{"input", row}}, {{"other", 0.0}});
  Numbers both{{5, 8}, p.numbers(y).values};
  const std::vector<float> rest = p.numbers(turned).values;
  both.values.insert(both.values.end(), rest.begin(), rest.end());
  const int room = p.result_of(1, "zeros", {}, {{5, 8}, std::vector<float>(40)});
  const int all = p.result_of(5, "setitem", {{"input", room}, {"value", turned}}, both);
  return p.result(p.result_of(6, "getitem", {{"input", all}}, both));
}

TEST(ZoomUnmatched, WhatIsOnlyMovedWasMadeWrong) {
  Side reference = kept_rows("reference.py", false), wrong = kept_rows("yours.py", true);
  EXPECT_TRUE(lines_named_for(reference, wrong).contains(4));
}

}  // namespace
}  // namespace lockstep::zoom
