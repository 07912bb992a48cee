#include "compare/ledger.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

void replaced(RunMaker& run) {
  for (RecordedTensor& record : run.run.records) record.substituted = true;
}

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
  replaced(substituted);
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

// A residual goes past the tensor that was replaced: the same error comes out at the end of the block.
TEST(Ledger, OneMistakeIsOneSource) {
  const Values x = noise({8, 16}, 1), d = noise({8, 16}, 2, 0.1f), branch = noise({8, 16}, 3);
  const auto sum = [](const Values& a, const Values& b) {
    Values out = a;
    for (size_t i = 0; i < out.v.size(); ++i) out.v[i] += b.v[i];
    return out;
  };
  RunMaker reference, as_it_is, substituted;
  reference.in("net.norm", x).add("net", sum(x, branch));
  as_it_is.in("net.norm", sum(x, d)).add("net", sum(sum(x, d), mapped(branch, [](double v) { return 1.01 * v; })));
  substituted.in("net.norm", sum(x, d)).add("net", sum(sum(x, d), branch));
  replaced(substituted);
  const Ledger ledger = make_ledger(reference.run, as_it_is.run, substituted.run);
  EXPECT_EQ(ledger.sources, std::vector<size_t>{0});
  EXPECT_EQ(ledger.entries[1].word, "carrier");
}

TEST(Ledger, AParentDoesNotAmplifyWhatASourceInsideItMakes) {
  RunMaker reference, as_it_is, substituted;
  const Values x = noise({8, 16}, 1), y = noise({8, 16}, 2);
  const auto off = [](const Values& v, double k) { return mapped(v, [k](double a) { return (1 + k) * a; }); };
  reference.in("net", x).add("net.a", x).add("net.b", y).add("net", y);
  as_it_is.in("net", off(x, 0.01)).add("net.a", off(x, 0.01)).add("net.b", off(y, 0.3)).add("net", off(y, 0.3));
  substituted.in("net", x).add("net.a", x).add("net.b", off(y, 0.29)).add("net", y);
  replaced(substituted);
  const Ledger ledger = make_ledger(reference.run, as_it_is.run, substituted.run);
  EXPECT_EQ(ledger.sources, std::vector<size_t>{2});
  EXPECT_EQ(ledger.entries[3].word, "carrier");
}

// Another shape cannot be replaced; what is made from it is not on clean inputs and no source.
TEST(Ledger, WhatWasNotReplacedTaintsWhatFollows) {
  RunMaker reference, candidate;
  for (const char* name : {"a", "b", "c"}) {
    reference.add(name, noise({1, 8, 16}, 1));
    candidate.add(name, noise({1, name[0] == 'a' ? 8 : 5, 16}, 1));
    candidate.run.records.back().substituted = name[0] == 'a';
  }
  reference.add("d", noise({1, 8, 16}, 4));
  const Ledger ledger = make_ledger(reference.run, candidate.run, candidate.run);
  EXPECT_EQ(ledger.sources, std::vector<size_t>{1});
  EXPECT_EQ(ledger.entries[2].word, "carrier");
  EXPECT_EQ(ledger.missing, std::vector<std::string>{"d"});
  const std::string text = text_from(ledger, false, false).string();
  EXPECT_NE(text.find("2 tensors were not replaced"), std::string::npos) << text;
  EXPECT_NE(text.find("not recorded by your program, the first is d"), std::string::npos) << text;
}

TEST(Ledger, ValuesThatAreNotTakenAreToldFrom) {
  RunMaker reference, candidate;
  for (const char* name : {"a", "b", "c"})
    reference.add(name, noise({8, 16}, 1)), candidate.add(name, noise({8, 16}, static_cast<unsigned>(name[0])));
  replaced(candidate);
  const Ledger ledger = make_ledger(reference.run, candidate.run, candidate.run);
  EXPECT_EQ(ledger.sources, std::vector<size_t>{0});
  ASSERT_EQ(ledger.notes.size(), 1u);
  EXPECT_NE(ledger.notes[0].find("x = checkpoint(name, x)"), std::string::npos);
}

TEST(Ledger, AnotherLayoutIsNoError) {
  RunMaker reference, candidate;
  const Values x = noise({1, 6, 4, 5}, 1);
  reference.add("a", x);
  candidate.add("a", permuted(x, {0, 2, 3, 1}));
  EXPECT_TRUE(make_ledger(reference.run, candidate.run, candidate.run).sources.empty());
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
