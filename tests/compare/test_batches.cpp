// Batches whose items differ: masks of their own, items in another order; and a joint attention in which one stream
// takes one operand for another.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

// Two items, text of 10 tokens and image of 12, two heads of 16, neighbours rotated by a table for each stream.
struct Batch {
  static constexpr int64_t kText = 10, kImage = 12, kAll = kText + kImage, kPairs = 8, kWide = 32;
  enum Operand { kQ, kK, kV };
  using Hidden = std::function<bool(int64_t item, int64_t key)>;
  std::array<std::array<Values, 3>, 2> of;  // [stream][operand]
  std::array<Values, 2> tables;

  Batch() {
    unsigned seed = 1;
    for (size_t s = 0; s < 2; ++s) {
      const int64_t tokens = s == 0 ? kText : kImage;
      for (Values& x : of[s]) x = noise({2, tokens, kWide}, seed++);
      tables[s] = make_values({tokens, kPairs, 2});
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t i = 0; i < kPairs; ++i) {
          const double angle = static_cast<double>(t + (s == 0 ? 20 : 0)) * std::pow(1e4, -static_cast<double>(i) / 8);
          tables[s].row(t * kPairs + i)[0] = static_cast<float>(std::cos(angle));
          tables[s].row(t * kPairs + i)[1] = static_cast<float>(std::sin(angle));
        }
    }
  }
  // One head of one token, as it goes into the product.
  std::vector<double> row(Operand operand, int64_t item, int64_t token, size_t head) const {
    const size_t s = token < kText ? 0 : 1;
    const int64_t tokens = s == 0 ? kText : kImage, local = s == 0 ? token : token - kText;
    const auto from = of[s][operand].row(item * tokens + local).subspan(16 * head, 16);
    std::vector<double> out(from.begin(), from.end());
    for (size_t i = 0; i < kPairs && operand != kV; ++i) {
      const auto turn = tables[s].row(local * kPairs + static_cast<int64_t>(i));
      const double a = out[2 * i], b = out[2 * i + 1];
      out[2 * i] = a * turn[0] - b * turn[1], out[2 * i + 1] = a * turn[1] + b * turn[0];
    }
    return out;
  }
  using Taken = std::function<Operand(Operand, int64_t token)>;
  Values attend(
      const Hidden& hidden, const Taken& taken = [](Operand o, int64_t) { return o; }) const {
    Values out = make_values({2, kImage, kWide});
    for (int64_t item = 0; item < 2; ++item)
      for (int64_t t = 0; t < kImage; ++t)
        for (size_t h = 0; h < 2; ++h) {
          const std::vector<double> q = row(taken(kQ, kText + t), item, kText + t, h);
          std::vector<double> sum(16);
          double total = 0;
          for (int64_t key = 0; key < kAll; ++key) {
            if (hidden(item, key)) continue;
            const std::vector<double> k = row(taken(kK, key), item, key, h), v = row(taken(kV, key), item, key, h);
            double score = 0;
            for (size_t j = 0; j < 16; ++j) score += q[j] * k[j] / 4;
            const double weight = std::exp(score);
            total += weight;
            for (size_t j = 0; j < 16; ++j) sum[j] += weight * v[j];
          }
          for (size_t j = 0; j < 16; ++j) out.row(item * kImage + t)[16 * h + j] = static_cast<float>(sum[j] / total);
        }
    return out;
  }
  RunMaker run(const Values& attended) const {
    RunMaker out;
    out.add("net.pos_embed.0", tables[1]).add("net.pos_embed.1", tables[0]);
    out.add("net.attn.to_q", of[1][kQ]).add("net.attn.to_k", of[1][kK]).add("net.attn.to_v", of[1][kV]);
    out.add("net.attn.add_q_proj", of[0][kQ]).add("net.attn.add_k_proj", of[0][kK]);
    out.add("net.attn.add_v_proj", of[0][kV]);
    out.in("net.attn.to_out", attended).add("net.attn.to_out", attended);
    return out;
  }
  // The second item's prompt has 4 tokens.
  static bool padded(int64_t item, int64_t key) { return item == 1 && key >= 4 && key < kText; }
  std::string cause(const Values& wrong) const { return first_cause(run(attend(padded)), run(wrong)); }
};

TEST(Batches, KeysHiddenFromTheWrongItems) {
  const Batch batch;
  EXPECT_EQ(batch.cause(batch.attend([](int64_t, int64_t) { return false; })), "attention.mask_missing");
  EXPECT_EQ(batch.cause(batch.attend([](int64_t item, int64_t key) { return Batch::padded(1 - item, key); })),
            "attention.mask");
  EXPECT_EQ(batch.cause(batch.attend([](int64_t, int64_t key) { return Batch::padded(1, key); })),  // one for all
            "attention.mask");
}

TEST(Batches, AnySetOfHiddenKeys) {
  const Batch batch;
  // The mask of [text, image] read as [half the text, half the image, the rest of both].
  EXPECT_EQ(batch.cause(batch.attend([](int64_t item, int64_t key) {
    const int64_t of = key < 5 ? key : key < 11 ? key + 5 : key < 16 ? key - 6 : key;
    return Batch::padded(item, of);
  })),
            "attention.mask");
  EXPECT_EQ(batch.cause(batch.attend([](int64_t item, int64_t key) { return item == 1 && key % 3 == 1; })),
            "attention.mask");
  const auto result = compared(
      batch.run(batch.attend(Batch::padded)),
      batch.run(batch.attend([](int64_t, int64_t key) { return key == 2 || key == 7 || key == 8 || key == 15; })));
  ASSERT_FALSE(result.causes.empty());
  EXPECT_NE(result.causes[0].explanation.find("keys 2, 7 to 8, 15 hidden"), std::string::npos)
      << result.causes[0].explanation;
}

TEST(Batches, OneStreamTakesOneOperandForAnother) {
  const Batch batch;
  const auto exchanged = [](bool text, bool image) {
    return [=](Batch::Operand o, int64_t token) {
      if (!(token < Batch::kText ? text : image) || o == Batch::kQ) return o;
      return o == Batch::kK ? Batch::kV : Batch::kK;
    };
  };
  EXPECT_EQ(batch.cause(batch.attend(Batch::padded, exchanged(true, false))), "attention.qkv_exchanged");
  EXPECT_EQ(batch.cause(batch.attend(Batch::padded, exchanged(false, true))), "attention.qkv_exchanged");
  EXPECT_EQ(batch.cause(batch.attend(Batch::padded, exchanged(true, true))), "attention.qkv_exchanged");
  EXPECT_EQ(
      batch.cause(batch.attend(
          Batch::padded, [](Batch::Operand o, int64_t token) { return token < 10 && o == Batch::kV ? Batch::kK : o; })),
      "attention.qkv_exchanged");
}

TEST(Batches, ItemsInAnotherOrder) {
  const Values embeds = noise({3, 6, 8}, 1);
  Values mask = make_values({3, 6});
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t t = 0; t < 6; ++t) mask.row(i)[static_cast<size_t>(t)] = t < 2 * i + 2 ? 1.f : 0.f;
  const auto moved = [](const Values& x, const std::vector<int64_t>& order) {
    Values out = x;
    const int64_t size = x.size() / 3;
    for (int64_t i = 0; i < 3; ++i)
      std::copy_n(x.v.begin() + order[static_cast<size_t>(i)] * size, size, out.v.begin() + i * size);
    return out;
  };
  const auto run = [&](const std::vector<int64_t>& of_mask, const std::vector<int64_t>& of_embeds) {
    RunMaker out;
    out.in("net.mask", moved(mask, of_mask)).in("net.embeds", moved(embeds, of_embeds));
    out.add("net.first", mapped(moved(embeds, of_embeds), silu)).add("net", mapped(moved(embeds, of_embeds), silu));
    return out;
  };
  const RunMaker right = run({0, 1, 2}, {0, 1, 2});
  EXPECT_EQ(first_cause(right, run({2, 1, 0}, {2, 1, 0})), "layout.reversed");
  EXPECT_EQ(first_cause(right, run({1, 2, 0}, {1, 2, 0})), "layout.rolled");
  // A mask alone is a guess.
  EXPECT_NE(first_cause(right, run({2, 1, 0}, {0, 1, 2})), "layout.reversed");
}

// Two prompts of different length: the shorter is filled up with zeros, behind it or in front of it.
TEST(Batches, AnItemFilledUpInFrontIsRolled) {
  const Values text = noise({7, 12}, 5), longer = noise({27, 12}, 6);
  const auto filled = [&](int64_t first) {
    Values out = make_values({2, 27, 12});
    std::copy(text.v.begin(), text.v.end(), out.v.begin() + first * 12);
    std::copy(longer.v.begin(), longer.v.end(), out.v.begin() + 27 * 12);
    return out;
  };
  RunMaker a, b;
  a.add("prompt_embeds", filled(0), Role::kCheckpoint), b.add("prompt_embeds", filled(20), Role::kCheckpoint);
  EXPECT_EQ(first_cause(a, b), "layout.rolled");
}

}  // namespace
}  // namespace lockstep
