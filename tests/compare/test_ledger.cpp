#include "compare/ledger.h"

#include <gtest/gtest.h>

#include <cmath>

#include "synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

// y1 = f(x), y2 = 3 * y1, y3 = g(y2); bugs in stage 1 and 3. Substituted: each stage works on the reference's input.
TEST(Ledger, TwoIndependentSourcesAreBothFound) {
  const Values x = noise({8, 16}, 1);
  const auto times = [](const Values& v, double k) { return mapped(v, [k](double a) { return k * a; }); };
  const auto cubed = [](const Values& v, double k) { return mapped(v, [k](double a) { return a + k * std::sin(a); }); };
  RunMaker reference, as_it_is, substituted;
  const Values r1 = times(x, 1), r2 = times(r1, 3), r3 = cubed(r2, 0);
  const Values c1 = times(x, 1.1), c2 = times(c1, 3), c3 = cubed(c2, 0.2);
  reference.add("a", r1).add("b", r2).add("c", r3);
  as_it_is.add("a", c1).add("b", c2).add("c", c3);
  substituted.add("a", c1).add("b", times(r1, 3)).add("c", cubed(r2, 0.2));
  const Ledger ledger = make_ledger(reference.run, as_it_is.run, substituted.run);
  ASSERT_EQ(ledger.entries.size(), 3u);
  EXPECT_EQ(ledger.entries[0].word, "source");
  EXPECT_EQ(ledger.entries[1].word, "carrier");
  EXPECT_EQ(ledger.entries[2].word, "source");
  EXPECT_NEAR(ledger.entries[1].total, 0.1, 1e-5);
  EXPECT_NEAR(ledger.entries[1].local, 0, 1e-6);
  EXPECT_NEAR(ledger.entries[1].inherited, 0.1, 1e-5);
  EXPECT_NEAR(ledger.entries[1].gain, 1, 1e-4);
  EXPECT_EQ(ledger.sources.size(), 2u);
}

TEST(Ledger, CleanRunHasNoSource) {
  RunMaker reference, candidate;
  const Values x = noise({8, 16}, 1);
  reference.add("a", x);
  candidate.add("a", with_rounding(x, 2));
  EXPECT_TRUE(make_ledger(reference.run, candidate.run, candidate.run).sources.empty());
}

}  // namespace
}  // namespace lockstep
