// A stage that only the candidate runs.
#include <gtest/gtest.h>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

struct Chained {
  Values x = noise({1, 8, 6, 6}, 1), wide = noise({1, 16, 6, 6}, 2), other = noise({1, 8, 6, 6}, 3);

  RunMaker start() const {
    RunMaker out;
    return out.in("net.a", other).add("net.a", x);
  }
  // Yours: the named stages with what they take and give, then what goes on.
  RunMaker run(const std::vector<std::pair<Values, Values>>& stages, const Values& goes_on) const {
    RunMaker out = start();
    int at = 0;
    for (const auto& [taken, given] : stages) {
      const std::string name = "net.extra" + std::to_string(at++);
      out.in(name, taken).add(name, given);
    }
    return out.in("net.b", goes_on).add("net.b", mapped(goes_on, silu));
  }
  Values channels(int64_t from) const {
    Values out = make_values(x.shape);
    std::copy_n(wide.v.begin() + from * 36, out.v.size(), out.v.begin());
    return out;
  }
};

TEST(AdditionalStage, WhatItGivesStandsForWhatItTakes) {
  const Chained chain;
  const RunMaker right = chain.run({}, chain.x);
  const auto cause = [&](const RunMaker& wrong) { return first_cause(right, wrong); };
  EXPECT_EQ(cause(chain.run({{chain.x, chain.other}}, chain.other)), "stage.replaced");
  EXPECT_EQ(cause(chain.run({{chain.x, chain.wide}}, chain.channels(0))), "stage.replaced");
  EXPECT_EQ(cause(chain.run({{chain.x, chain.wide}}, chain.channels(8))), "stage.replaced");
  const Values y = noise(chain.x.shape, 5), z = noise(chain.x.shape, 6);
  EXPECT_EQ(cause(chain.run({{chain.x, y}, {y, z}}, z)), "stage.replaced");
}

TEST(AdditionalStage, AStageUnderAnotherNameIsNone) {
  const Chained chain;
  const Values y = noise(chain.x.shape, 5), z = noise(chain.x.shape, 6);
  RunMaker right = chain.start();
  right.in("net.named", chain.x).add("net.named", y).in("net.b", y).add("net.b", mapped(y, silu));
  // The same stage, called otherwise, gave something wrong: it is not additional.
  EXPECT_NE(first_cause(right, chain.run({{chain.x, z}}, z)), "stage.replaced");
  // It ran, but what goes on was not made by it.
  EXPECT_NE(first_cause(chain.run({}, chain.x), chain.run({{chain.x, y}}, z)), "stage.replaced");
}

}  // namespace
}  // namespace lockstep
