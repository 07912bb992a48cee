// Two runs whose names differ, where place and order alone would pair the wrong tensors.
#include <gtest/gtest.h>

#include "capture/checksum.h"
#include "compare/comparison.h"
#include "compare/map_proposal.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using synthetic::compared;
using synthetic::noise;
using synthetic::partners_of;
using synthetic::RunMaker;

// As a recorder does: equal bytes, equal checksums.
void add_checksums(RunMaker& maker) {
  for (RecordedTensor& record : maker.run.records)
    record.checksum = checksum_text(record.load().contiguous().contiguous_bytes());
}

// Attention whose port computes q, k and v by one product without a module. Its norms of q, of k and of the result hand
// on what they are given. `wrong`: what it attends to.
void add_attention(RunMaker& reference, RunMaker& port, bool wrong) {
  Json of_reference = Json::object(), of_port = Json::object();
  const auto weigh = [](Json& header, const std::string& module, double rms) {
    header["modules"][module]["weights"]["weight"] = {
        {"shape", {8, 8}}, {"rms", rms}, {"mean", 0}, {"min", -3}, {"max", 3}};
  };
  for (int block = 0; block < 3; ++block) {
    const std::string of = "model.layers." + std::to_string(block) + ".self_attn",
                      own = "Net.blocks." + std::to_string(block) + ".attn";
    const auto values = [&](unsigned k) { return noise({6, 8}, 100u * static_cast<unsigned>(block) + k); };
    const unsigned other = wrong ? 20 : 0;
    reference.in(of, values(0));
    for (const unsigned k : {1u, 2u, 3u}) {
      const std::string name = of + ".proj" + std::to_string(k);
      reference.in(name, values(0)).add(name, values(k));
      weigh(of_reference, name, 10 * block + k);
    }
    reference.in(of + ".out", values(4)).add(of + ".out", values(5)).add(of, values(5));
    Values attended = values(4 + other);  // a mean of values: a little like them
    for (size_t i = 0; i < attended.v.size(); ++i) attended.v[i] = 0.6f * attended.v[i] + 0.5f * values(3).v[i];
    port.add(own + ".norm_a", values(1)).add(own + ".norm_b", values(2)).add(own + ".norm_inner", attended);
    port.add(own + ".out", values(5 + other)).add(own, values(5 + other));
    weigh(of_reference, of + ".out", 10 * block + 5), weigh(of_port, own + ".out", 10 * block + 5);
  }
  reference.run.header = of_reference, port.run.header = of_port;
  add_checksums(reference), add_checksums(port);
}

TEST(RefutedPairs, NothingDiffersInACallThatGivesTheSame) {
  RunMaker reference, port;
  add_attention(reference, port, false);
  reference.run.header = port.run.header = Json();
  for (const auto& [own, of] : partners_of(reference, port)) EXPECT_FALSE(of.ends_with("proj3")) << own << " is " << of;
  EXPECT_EQ(compared(reference, port).verdict, "match");
}

TEST(RefutedPairs, ALayerWithWeightsIsNoneWithout) {
  RunMaker reference, port;
  add_attention(reference, port, true);
  const auto partners = partners_of(reference, port);
  for (const auto& [own, of] : partners) EXPECT_FALSE(own.ends_with("norm_inner")) << own << " is " << of;
  EXPECT_EQ(partners.at("Net.blocks.#.attn.out"), "model.layers.#.self_attn.out");
}

// A block adds to its stream, and the norm behind it keeps the direction, by `spread` more or less, and changes its
// size: what was named by hand is the stream.
std::string partner_of_the_stream(float size, float spread) {
  RunMaker reference, port;
  Values stream = noise({6, 32}, 1);
  for (int block = 0; block < 3; ++block) {
    const std::string of = "model.layers." + std::to_string(block);
    const Values branch = noise({6, 32}, 10u + static_cast<unsigned>(block));
    const Values weight = noise({32}, 50u + static_cast<unsigned>(block), spread);
    Values normed = stream;
    for (size_t i = 0; i < normed.v.size(); ++i) normed.v[i] *= size * (1 + weight.v[i % 32]);
    reference.in(of, stream).in(of + ".norm", stream).add(of + ".norm", normed);
    reference.in(of + ".mlp", normed).add(of + ".mlp", branch);
    for (size_t i = 0; i < stream.v.size(); ++i) stream.v[i] += branch.v[i];
    reference.add(of, stream);
    if (block != 0) continue;
    Values own = stream;
    const Values error = noise({6, 32}, 77, 0.4f);
    for (size_t i = 0; i < own.v.size(); ++i) own.v[i] += error.v[i];
    port.add("first", own, Role::kCheckpoint);
  }
  port.add("last", stream, Role::kCheckpoint);
  add_checksums(reference), add_checksums(port);
  return partners_of(reference, port)["first"];
}

TEST(RefutedPairs, WhatABlockGivesIsNoNormOfIt) {
  EXPECT_EQ(partner_of_the_stream(1, 0.4f), "model.layers.0");
  EXPECT_EQ(partner_of_the_stream(0.7f, 0.02f), "model.layers.0");
}

// What both programs return is not the same, and all before it is.
TEST(RefutedPairs, AResultWithoutAPartnerIsNoMatch) {
  for (const bool wrong : {false, true}) {
    RunMaker reference, port;
    for (RunMaker* run : {&reference, &port}) {
      const std::string root = run == &reference ? "Model" : "Net";
      run->in(root + ".picture", noise({3, 4}, 90)).in(root + ".text", noise({5, 4}, 91));
      for (unsigned k = 0; k < 6; ++k)
        run->in(root + ".layer" + std::to_string(k), noise({7, 8}, k))
            .add(root + ".layer" + std::to_string(k), noise({7, 8}, k + 1));
    }
    reference.add("Model.pictures", noise({2, 9}, 70)).add("Model.texts", noise({3, 9}, 71));
    reference.add("Model.pooled.first", noise({3, 9}, 72));
    port.add("Net.0", noise({2, 9}, wrong ? 80 : 70)).add("Net.1", noise({3, 9}, wrong ? 81 : 71));
    add_checksums(reference), add_checksums(port);
    const Comparison result = compared(reference, port);
    EXPECT_EQ(result.verdict == "match", !wrong) << result.verdict;
    if (!wrong) {
      EXPECT_EQ(partners_of(reference, port)["Net.0"], "Model.pictures");
    }
  }
}

}  // namespace
}  // namespace lockstep
