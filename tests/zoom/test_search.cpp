#include <gtest/gtest.h>

#include <set>

#include "zoom/program.h"

namespace lockstep::zoom {
namespace {

// norm(x) * (1 + scale) + shift, then a linear layer and a gated residual. Each member is a way to get it wrong.
struct Mistake {
  bool exchanged = false, no_gate = false, written_out = false, subtracted = false, other_weight = false;
  double eps = 1e-6, factor = 1;
};

Side block(const std::string& file, const Mistake& mistake) {
  Program p(file);
  const int x = p.leaf(Origin::kInput, "x", {2, 6, 16}, 1), scale = p.leaf(Origin::kInput, "scale", {2, 1, 16}, 2),
            shift = p.leaf(Origin::kInput, "shift", {2, 1, 16}, 3),
            gate = p.leaf(Origin::kInput, "gate", {2, 1, 16}, 4),
            weight = p.leaf(Origin::kParameter, "proj.weight", {16, 16}, 5),
            other = p.leaf(Origin::kParameter, "other.weight", {16, 16}, 6);
  int h = -1;
  if (mistake.written_out) {
    const Json last{{"dim", -1}, {"keepdim", true}};
    const int centred = p.operation(1, "sub", {{"input", x}, {"other", p.operation(1, "mean", {{"input", x}}, last)}});
    const int variance = p.operation(2, "mean", {{"input", p.operation(2, "square", {{"input", centred}})}}, last);
    const int raised = p.operation(3, "add", {{"input", variance}}, {{"other", mistake.eps}});
    h = p.operation(3, "mul", {{"input", centred}, {"other", p.operation(3, "rsqrt", {{"input", raised}})}});
  } else {
    h = p.operation(3, "layer_norm", {{"input", x}}, {{"normalized_shape", {16}}, {"eps", mistake.eps}});
  }
  const int raised = p.operation(4, "add", {{"input", mistake.exchanged ? shift : scale}}, {{"other", 1}});
  h = p.operation(5, "mul", {{"input", h}, {"other", raised}});
  h = p.operation(6, mistake.subtracted ? "sub" : "add", {{"input", h}, {"other", mistake.exchanged ? scale : shift}});
  h = p.operation(7, "linear", {{"input", h}, {"weight", mistake.other_weight ? other : weight}});
  if (mistake.factor != 1) h = p.operation(8, "mul", {{"input", h}}, {{"other", mistake.factor}});
  if (!mistake.no_gate) h = p.operation(9, "mul", {{"input", gate}, {"other", h}});
  return p.result(p.operation(10, "add", {{"input", x}, {"other", h}}));
}

Answer answer_for(const Mistake& mistake) {
  Side reference = block("reference.py", {}), yours = block("yours.py", mistake);
  return search(reference, yours);
}

std::set<int> lines_named(const Mistake& mistake) {
  Side reference = block("reference.py", {}), yours = block("yours.py", mistake);
  const Answer answer = search(reference, yours);
  std::set<int> lines;
  for (const Region& region : answer.regions)
    for (const Place& place : lines_of(yours, region.yours, region.frame)) lines.insert(place.line);
  return lines;
}

TEST(Zoom, EqualProgramsDoNotDiverge) {
  const Answer answer = answer_for({});
  EXPECT_TRUE(answer.agrees);
  EXPECT_EQ(answer.matched, answer.compared);
  EXPECT_LT(answer.jump.yours, 0);
}

TEST(Zoom, ACorrectRewriteDoesNotDiverge) {
  const Answer answer = answer_for({.written_out = true});
  EXPECT_TRUE(answer.agrees);
  EXPECT_LT(answer.jump.yours, 0);
}

TEST(Zoom, ExchangedOperandsAreWiring) {
  const Answer answer = answer_for({.exchanged = true});
  ASSERT_FALSE(answer.regions.empty());
  EXPECT_EQ(answer.regions.front().kind, Kind::kWiring);
  EXPECT_EQ(lines_named({.exchanged = true}), (std::set<int>{4, 6}));
}

TEST(Zoom, AnArgumentIsNamedWithBothValues) {
  const Answer answer = answer_for({.eps = 1e-2});
  ASSERT_EQ(answer.regions.size(), 1U);
  EXPECT_EQ(answer.regions[0].kind, Kind::kArgument);
  ASSERT_EQ(answer.regions[0].arguments.size(), 1U);
  EXPECT_EQ(answer.regions[0].arguments[0].name, "eps");
  EXPECT_EQ(answer.regions[0].arguments[0].yours, "0.01");
  EXPECT_EQ(lines_named({.eps = 1e-2}), std::set<int>{3});
}

TEST(Zoom, AnEpsInANormThatWasWrittenOutIsFound) {
  EXPECT_EQ(lines_named({.written_out = true, .eps = 1e-2}), std::set<int>{3});
}

TEST(Zoom, AMissingStepIsNamedByTheReferencesLine) {
  Side reference = block("reference.py", {}), yours = block("yours.py", {.no_gate = true});
  const Answer answer = search(reference, yours);
  ASSERT_EQ(answer.regions.size(), 1U);
  EXPECT_EQ(answer.regions[0].kind, Kind::kMissingStep);
  const std::vector<Place> lines = lines_of(reference, answer.regions[0].reference, answer.regions[0].reference_frame);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].line, 9);
}

TEST(Zoom, AnExtraFactorIsNamed) {
  EXPECT_TRUE(lines_named({.factor = 0.5}).contains(8));
}

TEST(Zoom, ASignIsAnOperation) {
  const Answer answer = answer_for({.subtracted = true});
  ASSERT_EQ(answer.regions.size(), 1U);
  EXPECT_EQ(answer.regions[0].kind, Kind::kOperation);
  EXPECT_EQ(lines_named({.subtracted = true}), std::set<int>{6});
}

TEST(Zoom, AnotherParameterIsNamed) {
  const Answer answer = answer_for({.other_weight = true});
  ASSERT_EQ(answer.regions.size(), 1U);
  EXPECT_EQ(answer.regions[0].kind, Kind::kParameter);
  EXPECT_NE(answer.regions[0].note.find("other.weight"), std::string::npos);
  EXPECT_EQ(lines_named({.other_weight = true}), std::set<int>{7});
}

TEST(Zoom, TwoMistakesAreTwoRegions) {
  EXPECT_EQ(lines_named({.subtracted = true, .eps = 1e-2}), (std::set<int>{3, 6}));
  EXPECT_EQ(answer_for({.subtracted = true, .eps = 1e-2}).regions.size(), 2U);
}

// The cosine of a large angle: one rounding of the angle is a thousand of the result, and nobody's mistake.
Side cosines(const std::string& file, bool other_order, bool sine) {
  Program p(file);
  const int time = p.leaf(Origin::kInput, "time", {8, 1}, 1),
            frequency = p.leaf(Origin::kInput, "frequency", {1, 16}, 2),
            weight = p.leaf(Origin::kParameter, "weight", {16, 16}, 3);
  int angle = -1;
  if (other_order)
    angle = p.operation(
        1, "mul", {{"input", p.operation(1, "mul", {{"input", frequency}}, {{"other", 3001.3}})}, {"other", time}});
  else
    angle = p.operation(
        1, "mul", {{"input", p.operation(1, "mul", {{"input", time}}, {{"other", 3001.3}})}, {"other", frequency}});
  return p.result(p.operation(
      3, "linear", {{"input", p.operation(2, sine ? "sin" : "cos", {{"input", angle}})}, {"weight", weight}}));
}

TEST(Zoom, RoundingThatAStepMagnifiesIsNoMistake) {
  Side reference = cosines("reference.py", false, false), yours = cosines("yours.py", true, false);
  const Answer answer = search(reference, yours);
  EXPECT_GT(answer.output_error, 4 * answer.tolerance / 2);
  EXPECT_TRUE(answer.agrees);
  Side wrong = cosines("yours.py", true, true);
  EXPECT_FALSE(search(reference, wrong).agrees);
}

TEST(Zoom, AnEpsTooSmallToShowInTheOutputIsAJump) {
  Side reference = block("reference.py", {}), yours = block("yours.py", {.eps = 3e-6});
  const Answer answer = search(reference, yours);
  if (answer.agrees) {
    ASSERT_GE(answer.jump.yours, 0);
    EXPECT_EQ(yours.step(answer.jump.yours).where.front().line, 3);
  } else {
    EXPECT_EQ(lines_named({.eps = 3e-6}), std::set<int>{3});
  }
}

// A factor that rounds off by about 20 units, after so many steps that round nothing.
Side almost_one(const std::string& file, int steps, double factor) {
  Program p(file);
  int x = p.leaf(Origin::kInput, "x", {8, 16}, 1);
  for (int i = 0; i < steps; ++i) x = p.operation(1, "neg", {{"input", x}});
  return p.result(p.operation(2, "mul", {{"input", x}}, {{"other", factor}}));
}

TEST(Zoom, RoundingsOfManyStepsAddUp) {
  for (const int steps : {2, 400}) {
    Side reference = almost_one("reference.py", steps, 1), yours = almost_one("yours.py", steps, 1 + 1.2e-6);
    EXPECT_EQ(search(reference, yours).agrees, steps == 400);
  }
}

// Attention whose keys and values are shared by two heads each: repeated for them, or by the operation itself.
Side shared_heads(const std::string& file, bool repeated, double scale) {
  Program p(file);
  const int query = p.leaf(Origin::kInput, "query", {1, 4, 5, 8}, 1);
  const auto for_each_head = [&](int line, int value) {
    const Numbers few = p.numbers(value);
    Numbers all{{1, 4, 5, 8}, {}};
    for (const int head : {0, 0, 1, 1})
      all.values.insert(all.values.end(), few.values.begin() + 40 * head, few.values.begin() + 40 * (head + 1));
    return p.result_of(line, "repeat_interleave", {{"input", value}}, all);
  };
  const int key = p.leaf(Origin::kInput, "key", {1, 2, 5, 8}, 2),
            value = p.leaf(Origin::kInput, "value", {1, 2, 5, 8}, 3);
  if (repeated)
    return p.result(p.operation(3, "attention",
                                {{"query", query}, {"key", for_each_head(1, key)}, {"value", for_each_head(2, value)}},
                                {{"scale", scale}}));
  Side whole = shared_heads(file, true, scale);
  return p.result(p.result_of(3, "attention", {{"query", query}, {"key", key}, {"value", value}},
                              *whole.numbers(whole.tape().outputs[0].second), {{"scale", scale}}));
}

TEST(Zoom, HeadsThatShareAKeyNeedNoRepetition) {
  Side reference = shared_heads("reference.py", true, 0.35), yours = shared_heads("yours.py", false, 0.5);
  const Answer answer = search(reference, yours);
  ASSERT_EQ(answer.regions.size(), 1U);
  EXPECT_EQ(answer.regions[0].kind, Kind::kArgument);
  ASSERT_EQ(answer.regions[0].arguments.size(), 1U);
  EXPECT_EQ(answer.regions[0].arguments[0].name, "scale");
}

// A time in thousands, made so before a function that does it again; that function is one file of both programs.
Side timed(const std::string& file, const std::string& library, bool twice) {
  Program p(file);
  const int time = p.leaf(Origin::kInput, "time", {4, 8}, 1), w = p.leaf(Origin::kParameter, "w", {8, 8}, 2);
  const int given = twice ? p.operation(2, "mul", {{"input", time}}, {{"other", 10.0}})
                          : p.operation(2, "mul", {{"input", time}}, {{"other", 1.0}});
  p.in_file(library);
  const int scaled = p.operation(66, "mul", {{"input", p.operation(65, "neg", {{"input", given}})}}, {{"other", 10.0}});
  p.in_file(file);
  return p.result(p.operation(3, "linear", {{"input", scaled}, {"weight", w}}));
}

TEST(Zoom, ALineOfBothProgramsIsNotTooMuch) {
  Side reference = timed("reference.py", "library.py", false), yours = timed("yours.py", "library.py", true);
  EXPECT_EQ(lines_named_for(reference, yours), std::set<int>{2});
}

// A table that the reference made before the call; yours makes it in several steps.
TEST(Zoom, WhatTheReferenceWasGivenIsMadeInOneOfYourSteps) {
  const auto program = [](const std::string& file, bool given) {
    Program p(file);
    const int x = p.leaf(Origin::kInput, "x", {4, 8}, 1);
    int table = p.leaf(given ? Origin::kConstant : Origin::kInput, "", {4, 8}, 2);
    if (!given)
      table = p.operation(3, "concatenate", {{"0", p.operation(2, "tanh", {{"input", table}})}}, {{"dim", 0}});
    return p.result(p.operation(4, "mul", {{"input", x}, {"other", table}}));
  };
  Side reference = program("reference.py", true), yours = program("yours.py", false);
  EXPECT_TRUE(lines_named_for(reference, yours).contains(2));
}

}  // namespace
}  // namespace lockstep::zoom
