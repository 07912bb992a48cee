// Both passes of guidance in one batch on one side, one after the other on the other side.
#include <gtest/gtest.h>

#include "compare/batched_passes.h"
#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

Values both(const Values& a, const Values& b) {
  Values out = a;
  out.shape[0] *= 2;
  out.v.insert(out.v.end(), b.v.begin(), b.v.end());
  return out;
}

struct TwoPasses {
  Values cond = noise({1, 6, 8}, 1), uncond = noise({1, 6, 8}, 2), latents = noise({1, 6, 8}, 3);
  RunMaker apart() const {
    RunMaker out;
    for (const char* pass : {"cond", "uncond"}) {
      out.add("net", latents, Role::kInput, 0, {{"pass", pass}});
      out.add("net.out", pass == std::string("cond") ? cond : uncond, Role::kOutput, 0, {{"pass", pass}});
    }
    return out;
  }
  RunMaker batched(const Values& first, const Values& second) const {
    RunMaker out;
    out.add("net", both(latents, latents), Role::kInput, 0).add("net.out", both(first, second), Role::kOutput, 0);
    return out;
  }
};

TEST(BatchedPasses, AreComparedPassByPass) {
  const TwoPasses passes;
  for (const bool unconditional_first : {true, false}) {
    RunMaker a = passes.apart(), b = unconditional_first ? passes.batched(passes.uncond, passes.cond)
                                                         : passes.batched(passes.cond, passes.uncond);
    const std::string note = take_passes_apart(a.run, b.run, {});
    EXPECT_NE(note.find(unconditional_first ? "(unconditional first" : "(conditional first"), std::string::npos)
        << note;
    EXPECT_NE(note.find("yours"), std::string::npos) << note;
    const Comparison result = compared(a, b);
    EXPECT_EQ(result.verdict, "match");
    EXPECT_EQ(result.compared, 4u);
  }
}

TEST(BatchedPasses, TheReferenceMayBeTheOneThatBatches) {
  const TwoPasses passes;
  RunMaker a = passes.batched(passes.uncond, passes.cond), b = passes.apart();
  EXPECT_NE(take_passes_apart(a.run, b.run, {}).find("the reference"), std::string::npos);
  EXPECT_EQ(compared(a, b).verdict, "match");
}

TEST(BatchedPasses, AMistakeInOnePassIsOfThatPass) {
  const TwoPasses passes;
  RunMaker a = passes.apart(), b = passes.batched(mapped(passes.uncond, [](double x) { return 2 * x; }), passes.cond);
  take_passes_apart(a.run, b.run, {});
  const Comparison result = compared(a, b);
  ASSERT_TRUE(result.first);
  const Tags& tags = a.run.records[result.results[result.first->result].pair.reference].key.tags;
  EXPECT_EQ(tags, (Tags{{"pass", "uncond"}}));
  EXPECT_EQ(first_cause(result), "affine.scale");
}

TEST(BatchedPasses, TwoPromptsAreNotTwoPasses) {
  const TwoPasses passes;
  RunMaker a, b;
  a.add("net.out", both(passes.cond, passes.uncond), Role::kOutput, 0);
  b.add("net.out", both(passes.cond, passes.uncond), Role::kOutput, 0);
  EXPECT_EQ(take_passes_apart(a.run, b.run, {}), "");
  RunMaker c = passes.apart(), d;  // half of the batch is missing
  d.add("net.out", passes.cond, Role::kOutput, 0);
  EXPECT_EQ(take_passes_apart(c.run, d.run, {}), "");
}

}  // namespace
}  // namespace lockstep
