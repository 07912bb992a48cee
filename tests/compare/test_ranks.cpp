// Tensors that lie in shards on several ranks: put together by content, by shape, by the map, and a sum left out.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "compare/rank_assembly.h"
#include "compare/shards.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

Values part_of(const Values& x, int axis, int64_t begin, int64_t end) {
  return values_from(Tensor::from<float>(x.shape, x.v).slice(axis, begin, end));
}

Values plus(const Values& a, const Values& b, float sign = 1) {
  Values out = a;
  for (size_t i = 0; i < out.v.size(); ++i) out.v[i] += sign * b.v[i];
  return out;
}

// The shards of one tensor, or its terms, for each of `world` ranks.
std::vector<Values> cut(const Values& x, int axis, int world) {
  std::vector<Values> out;
  const int64_t size = x.dim(axis) / world;
  for (int r = 0; r < world; ++r) out.push_back(part_of(x, axis, r * size, (r + 1) * size));
  return out;
}
std::vector<Values> terms(const Values& x, int world) {
  std::vector<Values> out;
  Values rest = x;
  for (int r = 0; r + 1 < world; ++r) {
    out.push_back(noise(x.shape, 100 + static_cast<unsigned>(r)));
    rest = plus(rest, out.back(), -1);
  }
  out.push_back(rest);
  return out;
}
std::vector<Values> copies(const Values& x, int world) {
  return std::vector<Values>(static_cast<size_t>(world), x);
}

struct Ranks {
  explicit Ranks(int world) : of_rank(static_cast<size_t>(world)) {}
  Ranks& add(const std::string& name, const std::vector<Values>& shards, Role role = Role::kOutput) {
    for (size_t r = 0; r < shards.size(); ++r) of_rank[r].add(name, shards[r], role, -1, {{"rank", std::to_string(r)}});
    return *this;
  }
  RunMaker made() const {  // rank by rank, as a run is read
    RunMaker out;
    for (const RunMaker& rank : of_rank)
      out.run.records.insert(out.run.records.end(), rank.run.records.begin(), rank.run.records.end());
    return out;
  }
  std::vector<RunMaker> of_rank;
};

Comparison compared_on_ranks(RunMaker a, RunMaker b, RankAssembly* how = nullptr, const RankRules& rules = {}) {
  RankAssembly assembly = put_ranks_together(a.run, b.run, {}, rules);
  if (how) *how = assembly;
  return compared(a, b);
}

struct Layer {
  Values x = noise({2, 6, 8}, 1), up = noise({2, 6, 12}, 2), down = noise({2, 6, 8}, 3), sum = plus(x, down);
  RunMaker whole() const {
    RunMaker out;
    out.in("net.up", x).add("net.up", up).in("net.down", up).add("net.down", down).add("net", sum);
    return out;
  }
  Ranks on(int world) const {
    Ranks out(world);
    out.add("net.up", copies(x, world), Role::kInput).add("net.up", cut(up, 2, world));
    out.add("net.down", cut(up, 2, world), Role::kInput).add("net.down", terms(down, world));
    return out.add("net", copies(sum, world));
  }
};

TEST(Ranks, ShardsTermsAndReplicasAreFoundByContent) {
  const Layer layer;
  for (const int world : {2, 4}) {
    RankAssembly how;
    const Comparison result = compared_on_ranks(layer.whole(), layer.on(world).made(), &how);
    EXPECT_EQ(result.verdict, "match");
    EXPECT_EQ(result.compared, 5u);
    EXPECT_EQ(how.found["candidate"].dump(),
              R"({"net":"replicate","net.down":"sum","input net.down":"concatenate 2","net.up":"concatenate 2",)"
              R"("input net.up":"replicate"})");
    EXPECT_EQ(result.results[1].note, "assembled from " + std::to_string(world) + " ranks: concatenated along axis 2");
    EXPECT_EQ(compared_on_ranks(layer.on(world).made(), layer.whole()).verdict, "match") << "the reference has ranks";
  }
  EXPECT_EQ(compared_on_ranks(layer.on(4).made(), layer.on(2).made()).verdict, "match");
  EXPECT_EQ(compared_on_ranks(layer.on(2).made(), layer.on(2).made()).verdict, "match");
}

TEST(Ranks, PartsOfAnAxisAreCutEachByItself) {
  const Values q = noise({3, 8}, 1), k = noise({3, 8}, 2), v = noise({3, 8}, 3);
  const auto fused = [](const Values& a, const Values& b, const Values& c) {
    Values out = make_values({a.dim(0), 3 * a.dim(1)});
    for (int64_t row = 0; row < a.dim(0); ++row) {
      size_t at = static_cast<size_t>(row * 3 * a.dim(1));
      for (const Values* part : {&a, &b, &c})
        for (const float one : part->row(row)) out.v[at++] = one;
    }
    return out;
  };
  RunMaker whole;
  whole.add("qkv", fused(q, k, v));
  Ranks ranks(2);
  ranks.add("qkv", {fused(cut(q, 1, 2)[0], cut(k, 1, 2)[0], cut(v, 1, 2)[0]),
                    fused(cut(q, 1, 2)[1], cut(k, 1, 2)[1], cut(v, 1, 2)[1])});
  RankAssembly how;
  EXPECT_EQ(compared_on_ranks(whole, ranks.made(), &how).verdict, "match");
  EXPECT_EQ(how.found["candidate"]["qkv"], "concatenate 1 in 3 parts");
}

TEST(Ranks, GroupsOfRanksAreTakenInTwoSteps) {
  const Values x = noise({4, 8}, 1);
  RunMaker whole;
  whole.add("x", x);
  Ranks ranks(4);  // two batches, each cut for two ranks
  std::vector<Values> shards;
  for (const Values& batch : cut(x, 0, 2))
    for (const Values& one : cut(batch, 1, 2)) shards.push_back(one);
  ranks.add("x", shards);
  RankAssembly how;
  EXPECT_EQ(compared_on_ranks(whole, ranks.made(), &how).verdict, "match");
  EXPECT_EQ(how.found["candidate"]["x"], "concatenate 1 of 2, concatenate 0 of 2");
  // What was found can be given back.
  const Assembly again = assembly_from_text(how.found["candidate"]["x"].get<std::string>(), 4);
  EXPECT_EQ(text_of(again), how.found["candidate"]["x"].get<std::string>());
}

TEST(Ranks, ShapesTellWhereValuesDoNot) {
  const Layer layer;
  Ranks ranks(2);
  ranks.add("net.up", copies(layer.x, 2), Role::kInput)
      .add("net.up", cut(mapped(layer.up, [](double x) { return 2 * x; }), 2, 2));
  RankAssembly how;
  const Comparison result = compared_on_ranks(layer.whole(), ranks.made(), &how);
  EXPECT_EQ(result.verdict, "mismatch");
  EXPECT_EQ(how.found["candidate"]["net.up"].get<std::string>().substr(0, 11), "concatenate");
  EXPECT_EQ(first_cause(result), "affine.scale");  // diagnosed as one tensor
}

TEST(Ranks, ASumThatWasLeftOutIsNamed) {
  const Layer layer;
  Ranks ranks(2);
  const std::vector<Values> own = terms(layer.down, 2);
  ranks.add("net.up", copies(layer.x, 2), Role::kInput).add("net.up", cut(layer.up, 2, 2));
  ranks.add("net.down", cut(layer.up, 2, 2), Role::kInput).add("net.down", own);
  ranks.add("net", {plus(layer.x, own[0]), plus(layer.x, own[1])});
  const Comparison result = compared_on_ranks(layer.whole(), ranks.made());
  EXPECT_EQ(result.verdict, "mismatch");
  ASSERT_EQ(first_cause(result), "ranks.missing_sum");
  EXPECT_NE(result.causes[0].fix.find("net.down"), std::string::npos) << result.causes[0].fix;
  EXPECT_LT(result.causes[0].residual, 1e-5);
}

TEST(Ranks, TermsThatANextLayerIsGivenAreASumThatWasLeftOut) {
  const Layer layer;
  const std::vector<Values> own = terms(layer.down, 2);
  RunMaker whole = layer.whole();
  whole.in("norm", layer.down).add("norm", noise({2, 6, 8}, 9));
  Ranks ranks(2);
  ranks.add("net.down", cut(layer.up, 2, 2), Role::kInput).add("net.down", own);
  ranks.add("norm", own, Role::kInput).add("norm", {noise({2, 6, 8}, 20), noise({2, 6, 8}, 21)});
  const Comparison result = compared_on_ranks(whole, ranks.made());
  EXPECT_EQ(first_cause(result), "ranks.missing_sum");
  EXPECT_EQ(result.causes[0].look_at, "net.down");
}

TEST(Ranks, TermsAtTheEndAreNoMatch) {
  const Layer layer;
  RunMaker whole;
  whole.add("down", layer.down);
  Ranks ranks(2);
  ranks.add("down", terms(layer.down, 2));
  const Comparison result = compared_on_ranks(whole, ranks.made());
  EXPECT_EQ(result.verdict, "partial");
  EXPECT_NE(result.notes.back().find("all_reduce"), std::string::npos) << result.notes.back();
}

TEST(Ranks, ARankThatDiffersIsNotOverlooked) {
  const Layer layer;
  for (const size_t odd : {0u, 1u, 2u}) {
    Ranks ranks(3);
    std::vector<Values> all = copies(layer.x, 3);
    all[odd] = noise({2, 6, 8}, 77);
    ranks.add("x", all);
    RunMaker whole;
    whole.add("x", layer.x);
    const Comparison result = compared_on_ranks(whole, ranks.made());
    EXPECT_EQ(result.verdict, "mismatch");
    ASSERT_EQ(first_cause(result), "ranks.one_differs");
    EXPECT_NE(result.causes[0].explanation.find("rank " + std::to_string(odd) + " does not"), std::string::npos)
        << result.causes[0].explanation;
  }
}

TEST(Ranks, WhatTheMapSaysCounts) {
  const Layer layer;
  RunMaker whole;
  whole.add("x", layer.x).add("sum", layer.sum);
  Ranks ranks(2);
  ranks.add("x", terms(layer.x, 2)).add("sum", copies(layer.sum, 2));
  RankRules rules;
  EXPECT_EQ(compared_on_ranks(whole, ranks.made(), nullptr, rules).verdict, "match");
  rules.candidate = {{"x", "replicate"}};
  EXPECT_EQ(compared_on_ranks(whole, ranks.made(), nullptr, rules).verdict, "mismatch");
  rules.candidate = {{"*", "concatenate 7"}};
  EXPECT_THROW(compared_on_ranks(whole, ranks.made(), nullptr, rules), Error);
}

TEST(Ranks, AMapThatCannotBeReadIsRefused) {
  const fs::path file = fs::path(::testing::TempDir()) / "lockstep_rank_map.json";
  const auto read = [&](const std::string& text) {
    std::ofstream(file) << text;
    return read_rank_rules(file);
  };
  EXPECT_EQ(read(R"({"ranks": {"candidate": {"a.#": "concatenate 1 in 3 parts"}}})").candidate.size(), 1u);
  EXPECT_TRUE(read(R"({"rules": []})").candidate.empty());
  for (const char* bad :
       {R"({"ranks": []})", R"({"ranks": {"mine": {}}})", R"({"ranks": {"candidate": {"a": 1}}})",
        R"({"ranks": {"candidate": {"a": "concatenate"}}})", R"({"ranks": {"candidate": {"a": "concatenate -1"}}})",
        R"({"ranks": {"candidate": {"a": "sum of"}}})", R"({"ranks": {"candidate": {"a": ""}}})",
        R"({"ranks": {"candidate": {"a": "concatenate 1 in 99999999999 parts"}}})"})
    EXPECT_THROW(read(bad), Error) << bad;
  fs::remove(file);
}

TEST(Ranks, NamesThatDifferAreFoundByContentToo) {
  const Layer layer;
  Ranks ranks(2);
  ranks.add("mlp_in", copies(layer.x, 2), Role::kCheckpoint).add("hidden", cut(layer.up, 2, 2), Role::kCheckpoint);
  ranks.add("result", copies(layer.sum, 2), Role::kCheckpoint);
  RankAssembly how;
  const Comparison result = compared_on_ranks(layer.whole(), ranks.made(), &how);
  EXPECT_EQ(how.found["candidate"]["hidden"], "concatenate 2");
  EXPECT_GE(result.compared, 2u);
}

TEST(Ranks, WhatOnlyOneRankHasIsItsOwn) {  // a pipeline: layers on different ranks
  const Layer layer;
  Ranks ranks(2);
  ranks.of_rank[0].add("net.up", layer.up, Role::kOutput, -1, {{"rank", "0"}});
  ranks.of_rank[1].add("net.down", layer.down, Role::kOutput, -1, {{"rank", "1"}});
  ranks.of_rank[1].add("net", layer.sum, Role::kOutput, -1, {{"rank", "1"}});
  const Comparison result = compared_on_ranks(layer.whole(), ranks.made());
  EXPECT_EQ(result.verdict, "match");
  EXPECT_EQ(result.compared, 3u);
}

}  // namespace
}  // namespace lockstep
