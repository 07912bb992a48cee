// Attentions made here, with one step done otherwise: what is hidden, what the softmax divides by, how heads are cut.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

constexpr int64_t kWritten = 14, kWrittenHeads = 4, kHeadSize = 8, kWrittenKeyHeads = 2;
using Scores = std::vector<double>;  // of one query, by key

// One stream, causal, four heads of 8 on two key heads, written out.
struct Written {
  Values q = noise({1, kWritten, kWrittenHeads*kHeadSize}, 1), k = noise({1, kWritten, kWrittenKeyHeads*kHeadSize}, 2),
         v = noise({1, kWritten, kWrittenKeyHeads*kHeadSize}, 3);
  struct How {
    std::function<void(int64_t, Scores&)> mask = [](int64_t query, Scores& s) {
      for (int64_t key = query + 1; key < kWritten; ++key) s[static_cast<size_t>(key)] = -INFINITY;
    };
    double more = 0;  // added to what the softmax divides by, times exp(0)
    std::function<int64_t(int64_t)> key_head = [](int64_t head) { return head / 2; };
    std::function<int64_t(int64_t)> value_head = [](int64_t head) { return head / 2; };
    std::function<double(int64_t)> scale = [](int64_t) { return 1 / std::sqrt(8.0); };
    int64_t size = kHeadSize;  // of a head
    bool heads_first = false;  // the result's memory as [heads, tokens, size]
    int64_t late = 0;          // keys and values of so many tokens before
  };
  Values make(const How& how) const {
    Values out = make_values(q.shape);
    const int64_t heads = kWrittenHeads * kHeadSize / how.size;
    const auto at = [&](const Values& x, int64_t token, int64_t head, int64_t j) {
      return static_cast<double>(x.row((token + kWritten) % kWritten)[static_cast<size_t>(head * how.size + j)]);
    };
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t t = 0; t < kWritten; ++t) {
        Scores s(kWritten);
        for (int64_t key = 0; key < kWritten; ++key)
          for (int64_t j = 0; j < how.size; ++j)
            s[static_cast<size_t>(key)] += how.scale(h) * at(q, t, h, j) * at(k, key - how.late, how.key_head(h), j);
        how.mask(t, s);
        double total = how.more;
        for (double& score : s) score = std::exp(score), total += score;
        for (int64_t j = 0; j < how.size; ++j) {
          double sum = 0;
          for (int64_t key = 0; key < kWritten; ++key)
            sum += s[static_cast<size_t>(key)] / total * at(v, key - how.late, how.value_head(h), j);
          const int64_t place =
              how.heads_first ? (h * kWritten + t) * how.size + j : t * kWrittenHeads * kHeadSize + h * how.size + j;
          out.v[static_cast<size_t>(place)] = static_cast<float>(sum);
        }
      }
    return out;
  }
  RunMaker run(const Values& attended) const {
    RunMaker out;
    out.add("net.attn.to_q", q).add("net.attn.to_k", k).add("net.attn.to_v", v);
    out.in("net.attn.to_out", attended).add("net.attn.to_out", attended);
    return out;
  }
  std::string cause(const How& how) const { return first_cause(run(make({})), run(make(how))); }
  // For each later key, and for each of the others.
  std::string masked(const std::function<void(double&, int64_t, int64_t)>& later,
                     const std::function<void(double&, int64_t, int64_t)>& others = {}) const {
    return cause({.mask = [=](int64_t query, Scores& s) {
      for (int64_t key = 0; key < kWritten; ++key)
        if (key > query)
          later(s[static_cast<size_t>(key)], query, key);
        else if (others)
          others(s[static_cast<size_t>(key)], query, key);
    }});
  }
};

TEST(Attention, KeysThatAreHiddenOtherwise) {
  const Written written;
  const auto hide = [](double& score, int64_t, int64_t) { score = -INFINITY; };
  EXPECT_EQ(written.masked([](double&, int64_t, int64_t) {}), "attention.mask_missing");
  EXPECT_EQ(written.masked([](double& score, int64_t, int64_t) { score = 0; }), "attention.mask");     // multiplied
  EXPECT_EQ(written.masked([](double& score, int64_t, int64_t) { score -= 1; }), "attention.mask");    // 0 and 1 added
  EXPECT_EQ(written.masked([](double& score, int64_t, int64_t) { score -= 2.3; }), "attention.mask");  // any number
  EXPECT_EQ(written.masked([](double& score, int64_t query, int64_t key) {
    if (key > query + 1) score = -INFINITY;
  }),
            "attention.mask");
  EXPECT_EQ(written.masked(hide,
                           [](double& score, int64_t query, int64_t key) {
                             if (query - key >= 5) score = -INFINITY;
                           }),
            "attention.mask");
  EXPECT_EQ(written.masked(hide,
                           [](double& score, int64_t query, int64_t key) {
                             if (query / 3 != key / 3) score = -INFINITY;
                           }),
            "attention.mask");
}

// Queries and keys turned by tables of cos and sin, as in a text encoder; the queries stand further on by so many
// positions.
TEST(Attention, QueriesAheadOfTheTableOfPositions) {
  const Written written;
  const auto angle = [](int64_t token, int64_t pair) {
    return static_cast<double>(token) * std::pow(100.0, -pair / 4.0);
  };
  Values cos = make_values({1, kWritten, kHeadSize}), sin = cos;
  for (int64_t t = 0; t < kWritten; ++t)
    for (int64_t j = 0; j < kHeadSize; ++j)
      cos.row(t)[static_cast<size_t>(j)] = static_cast<float>(std::cos(angle(t, j % 4))),
      sin.row(t)[static_cast<size_t>(j)] = static_cast<float>(std::sin(angle(t, j % 4)));
  const auto turned = [&](Values x, int64_t ahead) {
    for (int64_t t = 0; t < kWritten; ++t)
      for (size_t h = 0; h < x.row(t).size(); h += kHeadSize)
        for (size_t j = 0; j < 4; ++j) {
          const double c = std::cos(angle(t + ahead, static_cast<int64_t>(j))),
                       s = std::sin(angle(t + ahead, static_cast<int64_t>(j)));
          const double a = x.row(t)[h + j], b = x.row(t)[h + j + 4];
          x.row(t)[h + j] = static_cast<float>(a * c - b * s), x.row(t)[h + j + 4] = static_cast<float>(a * s + b * c);
        }
    return x;
  };
  const auto run = [&](int64_t ahead) {
    Written rotated = written;
    rotated.q = turned(written.q, ahead), rotated.k = turned(written.k, 0);
    RunMaker out;
    out.add("net.rotary_emb.0", cos).add("net.rotary_emb.1", sin);
    out.add("net.attn.q_proj", written.q).add("net.attn.k_proj", written.k).add("net.attn.v_proj", written.v);
    const Values attended = rotated.make({});
    out.in("net.attn.o_proj", attended).add("net.attn.o_proj", attended);
    return out;
  };
  for (const int64_t ahead : {1, 2, -1}) EXPECT_EQ(first_cause(run(0), run(ahead)), "rotary.offset") << ahead;
}

TEST(Attention, WhatTheSoftmaxDividesBy) {
  const Written written;
  EXPECT_EQ(written.cause({.more = 1}), "attention.softmax");
  EXPECT_EQ(written.cause({.more = 18}), "attention.softmax");  // keys of zeros that fill up a size
  EXPECT_EQ(written.cause({.scale = [](int64_t) { return 0.29; }}), "attention.scale");
}

TEST(Attention, HeadsCutOtherwise) {
  const Written written;
  EXPECT_EQ(written.cause({.scale = [](int64_t) { return 0.5; }, .size = 4}), "attention.heads");
  EXPECT_EQ(written.cause({.value_head = [](int64_t h) { return h % 2; }}), "attention.key_groups");
  EXPECT_EQ(written.cause({.key_head = [](int64_t h) { return h % 2; }}), "attention.key_groups");
  EXPECT_EQ(written.cause({.heads_first = true}).substr(0, 7), "layout.");
  EXPECT_EQ(written.cause({.late = 1}), "layout.rolled");
}

// As small vision transformers and SigLIP have them.
TEST(Attention, HeadsOfUnusualSizes) {
  for (const size_t size : {size_t{24}, size_t{72}}) {
    const int64_t tokens = 9, width = static_cast<int64_t>(2 * size);
    const Values q = noise({1, tokens, width}, 1), k = noise({1, tokens, width}, 2), v = noise({1, tokens, width}, 3);
    const auto attended = [&](const Values& a, const Values& b) {
      Values out = make_values(q.shape);
      for (int64_t t = 0; t < tokens; ++t)
        for (size_t first = 0; first < 2 * size; first += size) {
          Scores scores(static_cast<size_t>(tokens));
          double total = 0;
          for (int64_t key = 0; key < tokens; ++key) {
            double& score = scores[static_cast<size_t>(key)];
            for (size_t j = first; j < first + size; ++j) score += static_cast<double>(a.row(t)[j]) * b.row(key)[j];
            total += score = std::exp(score / std::sqrt(static_cast<double>(size)));
          }
          for (size_t j = first; j < first + size; ++j)
            for (int64_t key = 0; key < tokens; ++key)
              out.row(t)[j] += static_cast<float>(scores[static_cast<size_t>(key)] / total * v.row(key)[j]);
        }
      return out;
    };
    const auto run = [&](const Values& result) {
      RunMaker out;
      out.add("net.attn.to_q", q).add("net.attn.to_k", k).add("net.attn.to_v", v);
      return out.in("net.attn.to_out", result).add("net.attn.to_out", result);
    };
    EXPECT_EQ(first_cause(run(attended(q, k)), run(attended(k, q))), "attention.qkv_exchanged") << size;
  }
}

TEST(Attention, SomeHeadsAlone) {
  const Written written;
  EXPECT_EQ(written.cause({.scale = [](int64_t h) { return (h == 2 ? 0.7 : 1) / std::sqrt(8.0); }}), "attention.scale");
}

TEST(Attention, NothingIsSaidOfAnythingElse) {
  const Written written;
  const Values right = written.make({}), other = noise(right.shape, 9, 0.3f);
  Values wrong = right;
  for (size_t i = 0; i < wrong.v.size(); ++i) wrong.v[i] += other.v[i];
  EXPECT_EQ(first_cause(written.run(right), written.run(wrong)), "");
}

// Rows of the table for 12 tokens and heads of 16, and a tensor that is recorded after its rotation.
struct Rotated {
  Values x = noise({1, 12, 3, 16}, 5);
  double angle(int64_t token, int64_t column) const {
    return static_cast<double>(token) * std::pow(1e4, -static_cast<double>(column) / 8);
  }
  // turned(head's elements, token) in place
  template <typename Turn>
  RunMaker run(const Turn& turn) const {
    Values table = make_values({12, 8, 2}), out = x;
    for (int64_t t = 0; t < 12; ++t) {
      for (int64_t i = 0; i < 8; ++i) {
        table.v[static_cast<size_t>((t * 8 + i) * 2)] = static_cast<float>(std::cos(angle(t, i)));
        table.v[static_cast<size_t>((t * 8 + i) * 2 + 1)] = static_cast<float>(std::sin(angle(t, i)));
      }
      for (int64_t h = 0; h < 3; ++h) turn(out.v.data() + (t * 3 + h) * 16, t);
    }
    RunMaker made;
    made.add("net.pos_embed", table).add("net.to_q", x).add("net.rotated", out, Role::kCheckpoint);
    return made;
  }
  void pair(float& a, float& b, double angle_a, double angle_b, double sign = -1) const {
    const double x0 = a, x1 = b;
    a = static_cast<float>(x0 * std::cos(angle_a) + sign * x1 * std::sin(angle_a));
    b = static_cast<float>(x1 * std::cos(angle_b) + x0 * std::sin(angle_b));
  }
};

TEST(Rotation, PartsOfTheHeadAndMixedForms) {
  const Rotated rotated;
  const auto halves = [&](int64_t n, int64_t reach, int64_t step, double sign, int64_t begin) {
    return rotated.run([=, &rotated](float* head, int64_t t) {
      for (int64_t i = 0; i < n; ++i)
        rotated.pair(head[begin + i], head[begin + i + reach], rotated.angle(t, i * step), rotated.angle(t, i * step),
                     sign);
    });
  };
  const RunMaker right = halves(8, 8, 1, -1, 0);
  EXPECT_EQ(first_cause(right, halves(4, 4, 1, -1, 0)), "rotary.partial");
  EXPECT_EQ(first_cause(right, halves(4, 4, 2, -1, 0)), "rotary.partial");
  EXPECT_EQ(first_cause(right, halves(2, 2, 4, -1, 12)), "rotary.partial");
  EXPECT_EQ(first_cause(right, halves(8, 8, 1, 1, 0)), "rotary.sign");
  EXPECT_EQ(first_cause(right, rotated.run([&](float* head, int64_t t) {
              for (int64_t i = 0; i < 8; ++i)
                rotated.pair(head[i], head[i + 8], rotated.angle(t, i / 2), rotated.angle(t, (i + 8) / 2));
            })),
            "rotary.style");
}

// A table over a grid of 5 by 6: 3 columns for the row, 5 for the column of each token.
template <typename Angle>
std::string cause_of_grid(const Angle& wrong) {
  const auto table = [](const auto& angle) {
    Values out = make_values({30, 8, 2});
    for (int64_t t = 0; t < 30; ++t)
      for (int64_t i = 0; i < 8; ++i) {
        const double a = angle(t / 6 - 3, t % 6 - 3, i);
        out.v[static_cast<size_t>((t * 8 + i) * 2)] = static_cast<float>(std::cos(a));
        out.v[static_cast<size_t>((t * 8 + i) * 2 + 1)] = static_cast<float>(std::sin(a));
      }
    return out;
  };
  const auto right = [](int64_t y, int64_t x, int64_t i) {
    return i < 3 ? static_cast<double>(y) * std::pow(1e4, -static_cast<double>(i) / 3)
                 : static_cast<double>(x) * std::pow(1e4, -static_cast<double>(i - 3) / 5);
  };
  RunMaker a, b;
  a.add("net.pos_embed", table(right)), b.add("net.pos_embed", table(wrong));
  return first_cause(a, b);
}

TEST(RotaryTable, FrequenciesAreToldFromPositionsAndAxes) {
  const auto power = [](double i, double n) { return std::pow(1e4, -i / n); };
  EXPECT_EQ(cause_of_grid([&](double y, double x, int64_t i) {  // through the whole head
              return (i < 3 ? y : x) * power(static_cast<double>(i), 8);
            }),
            "rotary.theta");
  EXPECT_EQ(cause_of_grid([&](double y, double x, int64_t i) {  // 5 columns for the row, 3 for the column
              const double at = static_cast<double>(i);
              return i < 5 ? y * power(at, 5) : x * power(at - 5, 3);
            }),
            "rotary.axes_exchanged");
  EXPECT_EQ(cause_of_grid([&](int64_t y, int64_t x, int64_t i) {  // the negative ones backwards
              const double at = static_cast<double>(i);
              return i < 3 ? static_cast<double>(y < 0 ? -4 - y : y) * power(at, 3)
                           : static_cast<double>(x < 0 ? -4 - x : x) * power(at - 3, 5);
            }),
            "rotary.positions");
}

}  // namespace
}  // namespace lockstep
