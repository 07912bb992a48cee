// The one search by edits, on a form of three numbers: y = a x^p + b.
#include <gtest/gtest.h>

#include <cmath>

#include "diagnose/search/edits.h"
#include "measure/line_fit.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

struct Polynomial {
  double a = 1, b = 0, p = 1;
  friend bool operator==(const Polynomial&, const Polynomial&) = default;
};

struct Searched {
  explicit Searched(Polynomial of_candidate) : candidate(of_candidate) {}
  double measure(const Polynomial& form) const {
    Residual out;
    for (double x = 0.5; x < 4; x += 0.25)
      out.add(form.a * std::pow(x, form.p) + form.b, candidate.a * std::pow(x, candidate.p) + candidate.b);
    return out.relative();
  }
  EditSearch<Polynomial> search() {
    return {base, [this](const Polynomial& form) { return ++measured, measure(form); }, 1, budget};
  }
  Polynomial base, candidate;
  Budget budget{100000};
  int measured = 0;
};

const std::vector<Edit<Polynomial>> kPolynomialEdits = {
    {{"affine.scale", "divide by two"}, [](Polynomial& f) { f.a = 2; }, 1},
    {{"affine.scale", "divide by three"}, [](Polynomial& f) { f.a *= 3; }, 1},
    {{"affine.offset", "subtract one"}, [](Polynomial& f) { f.b = 1; }},
    {{"elementwise.added"}, [](Polynomial& f) { f.p = 2; }, 0, false},
};

TEST(Search, NamesTheEditThatFits) {
  Searched of({1, 1, 1});
  auto search = of.search();
  search.try_each(kPolynomialEdits);
  EXPECT_LT(search.best().residual, 1e-12);
  ASSERT_EQ(search.best().names.size(), 1U);
  EXPECT_EQ(search.best().names[0].cause.id(), "affine.offset");
  EXPECT_EQ(search.best().fix(), "subtract one");
}

TEST(Search, SaysTheFixOfTheTableWhereTheEditHasNone) {
  Searched of({1, 0, 2});
  auto search = of.search();
  search.try_each(kPolynomialEdits);
  EXPECT_EQ(search.best().fix(), "remove the function");
}

TEST(Search, ComposesTwoEditsThatDoNotExcludeEachOther) {
  const auto enough = [](double residual) { return residual < 1e-9; };
  Searched of({2, 1, 1});
  auto search = of.search();
  search.try_each(kPolynomialEdits);
  EXPECT_GT(search.best().residual, 0.01);
  search.try_pairs(4, kPolynomialEdits, enough);
  EXPECT_LT(search.best().residual, 1e-9);
  EXPECT_EQ(search.best().names.size(), 2U);
  EXPECT_NE(search.best().fix().find("; and "), std::string::npos);

  Searched excluded({6, 0, 1});  // two factors
  auto of_one_kind = excluded.search();
  of_one_kind.try_each(kPolynomialEdits);
  of_one_kind.try_pairs(4, kPolynomialEdits, enough);
  EXPECT_GT(of_one_kind.best().residual, 0.01);

  Searched alone({1, 1, 2});  // a power, which is no part of a pair
  auto without = alone.search();
  without.try_each(kPolynomialEdits);
  without.try_pairs(4, kPolynomialEdits, enough);
  EXPECT_GT(without.best().residual, 0.01);
}

TEST(Search, SolvesForANumberOfAnySize) {
  Searched of({-7.3, 0, 1});
  auto search = of.search();
  search.try_each(kPolynomialEdits);
  search.try_number({{"affine.scale"}, [](Polynomial& f, double x) { f.a = x; }, true});
  EXPECT_LT(search.best().residual, 1e-3);
  EXPECT_NEAR(search.best().form.a, -7.3, 0.01);
}

TEST(Search, TakesTheRoundNumberThatFitsAlike) {
  Searched of({2.5, 0, 1});
  auto search = of.search();
  search.try_number({{"affine.scale"}, [](Polynomial& f, double x) { f.a = x; }});
  EXPECT_EQ(search.best().form.a, 2.5);

  Searched apart({2.5437, 0, 1});  // no round number: what was solved for stays
  auto other = apart.search();
  other.try_number({{"affine.scale"}, [](Polynomial& f, double x) { f.a = x; }});
  EXPECT_NEAR(other.best().form.a, 2.5437, 1e-3);
}

TEST(Search, LooksForANumberWhereItIsToldTo) {
  Searched of({3e5, 0, 1});
  auto search = of.search();
  search.try_number({{"affine.scale"}, [](Polynomial& f, double x) { f.a = x; }});
  EXPECT_GT(search.best().residual, 0.5);
  search.try_number({{"affine.scale"}, [](Polynomial& f, double x) { f.a = x; }, false, 1, 1e7});
  EXPECT_NEAR(search.best().form.a / 3e5, 1, 1e-3);
}

TEST(Search, BelievesASolverThatLeavesClearlyLess) {
  const auto solver = [](double a, double residual) {
    return [=](const Polynomial& reference, Budget&) {
      EditedForm<Polynomial> out{reference, residual, {{"affine.scale", "what was solved for"}}};
      out.form.a = a;
      return out;
    };
  };
  Searched of({1, 1.5, 1});
  auto search = of.search();
  search.try_each(kPolynomialEdits);
  const double before = search.best().residual;
  search.solve(solver(7, 0.9 * before));
  EXPECT_EQ(search.best().name().cause.id(), "affine.offset");
  search.solve(solver(7, 0.1 * before), 0.05 * before);  // much to choose from: nothing less than exact counts
  EXPECT_EQ(search.best().name().cause.id(), "affine.offset");
  search.solve(solver(7, 0.1 * before));
  EXPECT_EQ(search.best().name().fix, "what was solved for");
  EXPECT_EQ(search.best().form.a, 7);
}

TEST(Search, StopsWhenItsBudgetIsSpent) {
  Searched of({5, 5, 5});
  of.budget = Budget(6);
  auto search = of.search();
  search.try_each(kPolynomialEdits);
  search.try_number({{"affine.scale"}, [](Polynomial& f, double x) { f.a = x; }});
  search.try_pairs(4, kPolynomialEdits, [](double) { return false; });
  EXPECT_EQ(of.measured, 6);
}

TEST(Search, TakesTheFirstFormThatExplainsTheReference) {
  const Searched of({2, 0, 1});
  const auto found = fit_reference(
      std::vector<Polynomial>{{1, 0, 1}, {2, 1e-9, 1}, {2, 0, 1}},
      [&](const Polynomial& form) { return of.measure(form); }, 1e-6);
  EXPECT_EQ(found.form.b, 1e-9);
}

TEST(Search, DoesNotPreferAFormThatIsNearerByRoundingAlone) {
  const auto found = fit_reference(
      std::vector<Polynomial>{{1, 0, 1}, {2, 0, 1}, {3, 0, 1}},
      [](const Polynomial& form) { return form.a == 1   ? 1.0
                                          : form.a == 2 ? 1e-7
                                                        : 0.99e-7; }, 0);
  EXPECT_EQ(found.form.a, 2);
}

TEST(Report, SaysTheReferenceThenYours) {
  Findings out;
  const Report report("x W", 1e-7, out);
  EXPECT_TRUE(report.add({"linear.bias_missing", "add b", Blame::kWeights}, "x V", 1e-6, 0.7));
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].explanation, "reference: x W; yours: x V");
  EXPECT_EQ(out[0].fix, "add b");
  EXPECT_EQ(out[0].residual_reference, 1e-7);
  EXPECT_EQ(out[0].residual, 1e-6);
  EXPECT_EQ(out[0].complexity, 0.7);
  EXPECT_EQ(out[0].blame, Blame::kWeights);
}

TEST(Residual, IsRelativeAndInfiniteWhereNothingIsToBeExplained) {
  Residual of_nothing, of_something;
  of_nothing.add(1, 0);
  EXPECT_TRUE(std::isinf(of_nothing.relative()));
  EXPECT_EQ(of_nothing.relative_or(0), 0);
  of_something.add(3, 4), of_something.add(3, 3);
  EXPECT_DOUBLE_EQ(of_something.relative(), 0.2);
  EXPECT_TRUE(of_something.is_beyond(0.19));
  EXPECT_FALSE(of_something.is_beyond(0.21));
  of_something.add(NAN, 1);
  EXPECT_TRUE(std::isinf(of_something.relative()));
}

TEST(LineFit, FindsTheLineTheFactorAndTheOffset) {
  LineFit line, factor, offset, flat;
  for (const double x : {1.0, 2.0, 5.0})
    line.add(x, 3 * x - 2), factor.add(x, -4 * x), offset.add(x, x + 7), flat.add(2, x);
  EXPECT_NEAR(line.line(0).scale, 3, 1e-12);
  EXPECT_NEAR(line.line(0).offset, -2, 1e-12);
  EXPECT_NEAR(factor.factor(0), -4, 1e-12);
  EXPECT_NEAR(offset.offset(), 7, 1e-12);
  EXPECT_EQ(flat.line(1).scale, 1);  // a line through one place has no slope
}

}  // namespace
}  // namespace lockstep
