// Attentions of two streams whose rotations, formats, keys and axes differ: other tables than the recorded ones,
// operands in 8 bits, keys of another call.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

constexpr int64_t kText = 5, kRows = 3, kAcross = 4, kImage = kRows * kAcross, kAll = kText + kImage;
constexpr int64_t kJointHeads = 3, kOperandSize = 16, kPairs = kOperandSize / 2,
                  kJointWidth = kJointHeads * kOperandSize;
constexpr int64_t kFirst[] = {0, 2, 5, kPairs};  // columns of frame, height and width

using Head = std::vector<double>;
enum Operand { kQueries, kKeys, kAllValues };
// Where a token stands on the three axes. The text stands behind the image, on all axes alike.
double place(int64_t token, int axis) {
  if (token < kText) return static_cast<double>(token + 2);
  const int64_t t = token - kText;
  return axis == 0 ? 0 : axis == 1 ? static_cast<double>(t / kAcross - 1) : static_cast<double>(t % kAcross - 2);
}
int axis_of(int64_t column) {
  return column < kFirst[1] ? 0 : column < kFirst[2] ? 1 : 2;
}
double frequency(int64_t column, double theta = 1e4) {
  const int axis = axis_of(column);
  return std::pow(theta,
                  -static_cast<double>(column - kFirst[axis]) / static_cast<double>(kFirst[axis + 1] - kFirst[axis]));
}
double own_angle(int64_t token, int64_t column) {
  return place(token, axis_of(column)) * frequency(column);
}

// The columns from `first` on as one part whose halves turn together.
std::pair<int64_t, int64_t> in_halves(int64_t i, int64_t first, int64_t end) {
  return {first + i, first + i + end - first};
}
std::pair<int64_t, int64_t> in_halves_of_axis(int64_t i) {
  return in_halves(i, kFirst[axis_of(i)], kFirst[axis_of(i) + 1]);
}

struct TwoStreams;
struct JointHow {
  std::function<std::pair<int64_t, int64_t>(Operand, int64_t, int64_t)> pair = [](Operand, int64_t, int64_t i) {
    return std::pair(2 * i, 2 * i + 1);
  };
  std::function<double(Operand, int64_t, int64_t)> angle = [](Operand, int64_t token, int64_t i) {
    return own_angle(token, i);
  };
  std::function<void(Operand, int64_t, Head&)> held = [](Operand, int64_t, Head&) {};  // after its rotation
  std::function<double(double)> weight = [](double w) { return w; };
  bool across_heads = false;
  const TwoStreams* in_front = nullptr;  // another call
  const TwoStreams* instead = nullptr;   // whose keys and values they are
};

struct TwoStreams {
  unsigned seed = 1;
  Values of(int which) const {
    return noise({1, which < 3 ? kText : kImage, kJointWidth}, 10 * seed + static_cast<unsigned>(which));
  }

  // [token][head] of one operand, rotated
  std::vector<std::vector<Head>> made(Operand operand, const JointHow& how) const {
    const Values text = of(operand), image = of(3 + operand);
    std::vector<std::vector<Head>> out;
    for (int64_t t = 0; t < kAll; ++t) {
      out.emplace_back();
      for (int64_t h = 0; h < kJointHeads; ++h) {
        const auto row = t < kText ? text.row(t) : image.row(t - kText);
        Head x(row.begin() + h * kOperandSize, row.begin() + (h + 1) * kOperandSize);
        for (int64_t i = 0; i < kPairs && operand != kAllValues; ++i) {
          const auto [a, b] = how.pair(operand, t, i);
          const double angle = how.angle(operand, t, i), c = std::cos(angle), s = std::sin(angle);
          const double x0 = x[static_cast<size_t>(a)], x1 = x[static_cast<size_t>(b)];
          x[static_cast<size_t>(a)] = x0 * c - x1 * s, x[static_cast<size_t>(b)] = x0 * s + x1 * c;
        }
        how.held(operand, t, x);
        out.back().push_back(std::move(x));
      }
    }
    return out;
  }
  Values attended(const JointHow& how) const {
    const TwoStreams& source = how.instead ? *how.instead : *this;
    const auto q = made(kQueries, how);
    auto k = source.made(kKeys, how), v = source.made(kAllValues, how);
    if (how.in_front) {
      for (auto& row : how.in_front->made(kKeys, how)) k.push_back(row);
      for (auto& row : how.in_front->made(kAllValues, how)) v.push_back(row);
    }
    Values out = make_values({1, kImage, kJointWidth});
    for (int64_t t = 0; t < kImage; ++t)
      for (int64_t h = 0; h < kJointHeads; ++h) {
        const size_t at = static_cast<size_t>(t + kText), head = static_cast<size_t>(h);
        const size_t keys = how.across_heads ? kJointHeads : k.size();
        const auto of_key = [&](const auto& x, size_t key) -> const Head& {
          return how.across_heads ? x[at][key] : x[key][head];
        };
        std::vector<double> weights;
        double total = 0;
        for (size_t key = 0; key < keys; ++key) {
          double sum = 0;
          for (size_t j = 0; j < kOperandSize; ++j) sum += q[at][head][j] * of_key(k, key)[j];
          weights.push_back(std::exp(sum / std::sqrt(static_cast<double>(kOperandSize)))), total += weights.back();
        }
        for (size_t j = 0; j < kOperandSize; ++j) {
          double sum = 0;
          for (size_t key = 0; key < keys; ++key) sum += how.weight(weights[key] / total) * of_key(v, key)[j];
          out.row(t)[head * kOperandSize + j] = static_cast<float>(sum);
        }
      }
    return out;
  }
  void record(RunMaker& out, const Values& attended, int step) const {
    for (const bool image : {true, false}) {
      Values table = make_values({image ? kImage : kText, kPairs, 2});
      for (int64_t t = 0; t < table.shape[0]; ++t)
        for (int64_t i = 0; i < kPairs; ++i) {
          const double angle = own_angle(image ? t + kText : t, i);
          table.v[static_cast<size_t>((t * kPairs + i) * 2)] = static_cast<float>(std::cos(angle));
          table.v[static_cast<size_t>((t * kPairs + i) * 2 + 1)] = static_cast<float>(std::sin(angle));
        }
      out.add(image ? "net.pos_embed.0" : "net.pos_embed.1", table, Role::kOutput, step);
    }
    const char* const names[] = {"add_q_proj", "add_k_proj", "add_v_proj", "to_q", "to_k", "to_v"};
    for (int which = 0; which < 6; ++which)
      out.add(std::string("net.attn.") + names[which], of(which), Role::kOutput, step);
    out.add("net.attn.to_out", attended, Role::kInput, step).add("net.attn.to_out", attended, Role::kOutput, step);
  }
  RunMaker run(const Values& y) const {
    RunMaker out;
    record(out, y, 0);
    return out;
  }
  std::string cause(const JointHow& how, const JointHow& reference = {}) const {
    return first_cause(run(attended(reference)), run(attended(how)));
  }
};

TEST(AttentionOperands, HalvesOfTheAxes) {
  const TwoStreams two;
  const auto halved = [&](const std::function<bool(Operand, int64_t, int64_t)>& where) {
    return JointHow{.pair = [=](Operand operand, int64_t token, int64_t i) {
      return where(operand, token, i) ? in_halves_of_axis(i) : std::pair(2 * i, 2 * i + 1);
    }};
  };
  const auto everywhere = halved([](Operand, int64_t, int64_t) { return true; });
  EXPECT_EQ(two.cause(everywhere), "rotary.style");
  EXPECT_EQ(two.cause({}, everywhere), "rotary.style");
  EXPECT_EQ(two.cause(halved([](Operand o, int64_t, int64_t) { return o == kQueries; })), "rotary.style");
  EXPECT_EQ(two.cause(halved([](Operand, int64_t t, int64_t) { return t >= kText; })), "rotary.style");
  EXPECT_EQ(two.cause(halved([](Operand, int64_t, int64_t i) { return axis_of(i) == 1; })), "rotary.style");
  EXPECT_EQ(two.cause({.pair =
                           [](Operand, int64_t, int64_t i) {  // frame and height are one part
                             return i < kFirst[2] ? in_halves(i, 0, kFirst[2]) : in_halves_of_axis(i);
                           }}),
            "rotary.style");
  // Pairs that no style has.
  EXPECT_NE(two.cause({.pair = [](Operand, int64_t, int64_t i) { return std::pair((5 * i) % 16, (5 * i + 8) % 16); }}),
            "rotary.style");
}

TEST(AttentionOperands, OtherTablesThanTheRecordedOne) {
  const TwoStreams two;
  using Angle = std::function<double(int64_t, int64_t)>;
  const auto turned = [&](const Angle& angle, bool text = true, bool image = true, bool queries = true) {
    return two.cause({.angle = [=](Operand operand, int64_t token, int64_t i) {
      const bool own = (token < kText ? !text : !image) || (operand == kQueries && !queries);
      return own ? own_angle(token, i) : angle(token, i);
    }});
  };
  const Angle width_first = [](int64_t token, int64_t i) {
    return own_angle(token, i < 2 ? i : i < 5 ? i + 3 : i - 3);
  };
  EXPECT_EQ(turned(width_first), "rotary.axes_exchanged");
  EXPECT_EQ(turned(width_first, false), "rotary.axes_exchanged");
  EXPECT_EQ(turned(width_first, false, true, false), "rotary.axes_exchanged");
  EXPECT_EQ(turned([](int64_t token, int64_t i) { return place(token, 2 - axis_of(i)) * frequency(i); }, false),
            "rotary.axes_exchanged");
  EXPECT_EQ(turned([](int64_t token, int64_t i) {
              if (token < kText) return own_angle(token, i);
              const int64_t t = token - kText;
              return own_angle(kText + t % kRows * kAcross + t / kRows, i);
            }),
            "rotary.axes_exchanged");
  EXPECT_EQ(turned([](int64_t token, int64_t i) { return axis_of(i) == 2 ? 0 : own_angle(token, i); }, false),
            "rotary.partial");
  EXPECT_EQ(turned([](int64_t token, int64_t i) { return (axis_of(i) == 1 ? -1 : 1) * own_angle(token, i); }),
            "rotary.sign");
  EXPECT_EQ(
      turned([](int64_t token, int64_t i) { return own_angle(token, i) + (axis_of(i) == 2 ? 2 * frequency(i) : 0); },
             false),
      "rotary.offset");
  EXPECT_EQ(turned([](int64_t token, int64_t i) { return place(token, axis_of(i)) * frequency(i, 1e6); }),
            "rotary.theta");
  // Angles that no table has.
  EXPECT_FALSE(turned([](int64_t token, int64_t i) {
                 return std::sin(13.0 * static_cast<double>(token * i + token));
               }).starts_with("rotary"));
}

TEST(AttentionOperands, HeldInPoorFormats) {
  const TwoStreams two;
  const auto e4m3 = [](double x) { return static_cast<double>(float_from(float8_e4m3_from(static_cast<float>(x)))); };
  const auto e5m2 = [](double x) { return static_cast<double>(float_from(float8_e5m2_from(static_cast<float>(x)))); };
  const auto held = [&](const std::function<double(double)>& round,
                        const std::function<bool(Operand, int64_t)>& where) {
    return two.cause({.held = [=](Operand operand, int64_t token, Head& x) {
      for (double& value : x)
        if (where(operand, token)) value = round(value);
    }});
  };
  EXPECT_EQ(held(e4m3, [](Operand o, int64_t) { return o != kQueries; }), "precision.f8_e4m3");
  EXPECT_EQ(held(e4m3, [](Operand o, int64_t) { return o == kQueries; }), "precision.f8_e4m3");
  EXPECT_EQ(held(e4m3, [](Operand o, int64_t t) { return o == kKeys && t >= kText; }), "precision.f8_e4m3");
  EXPECT_EQ(held(e5m2, [](Operand o, int64_t) { return o == kAllValues; }), "precision.f8_e5m2");
  EXPECT_EQ(held(bf16, [](Operand o, int64_t) { return o == kKeys; }), "precision.bf16");
  EXPECT_EQ(two.cause({.weight = e4m3}), "precision.f8_e4m3");
  const auto whole = [](Operand operand, int64_t, Head& x) {
    double largest = 0;
    for (const double value : x) largest = std::max(largest, std::fabs(value));
    for (double& value : x)
      if (operand != kQueries) value = std::nearbyint(value / largest * 127) * largest / 127;
  };
  EXPECT_EQ(two.cause({.held = whole}), "precision.integer");
  // As far off, and no rounding.
  EXPECT_FALSE(two.cause({.held =
                              [](Operand operand, int64_t token, Head& x) {
                                for (size_t j = 0; j < x.size(); ++j)
                                  if (operand == kKeys)
                                    x[j] *= 1 + 0.03 * std::sin(static_cast<double>(token) * 7 +
                                                                31.0 * static_cast<double>(j));
                              }})
                   .starts_with("precision"));
}

TEST(AttentionOperands, KeysOfAnotherCall) {
  const TwoStreams first{.seed = 1}, second{.seed = 2}, stranger{.seed = 3};
  const auto runs = [&](const JointHow& how) {
    RunMaker a, b;
    for (RunMaker* run : {&a, &b}) first.record(*run, first.attended({}), 0);
    second.record(a, second.attended({}), 1), second.record(b, second.attended(how), 1);
    return first_cause(a, b);
  };
  EXPECT_EQ(runs({.in_front = &first}), "attention.mask");
  EXPECT_EQ(runs({.instead = &first}), "stage.replaced");
  EXPECT_EQ(runs({.in_front = &stranger}), "");
  EXPECT_EQ(runs({.instead = &stranger}), "");
}

// Two items of seven tokens, one stream, two heads of 8: key `seen(item, token, key)` of all fourteen is seen or not.
Values attended_in_batch(const std::function<bool(int64_t, int64_t)>& seen,
                         const std::function<int64_t(int64_t, int64_t)>& key_of) {
  constexpr int64_t kTokens = 7, kItems = 2, kOfHead = 8, kAcrossHeads = 2;
  const Values q = noise({kItems, kTokens, kAcrossHeads * kOfHead}, 1), k = noise(q.shape, 2), v = noise(q.shape, 3);
  Values out = make_values(q.shape);
  for (int64_t row = 0; row < kItems * kTokens; ++row)
    for (int64_t first = 0; first < kAcrossHeads * kOfHead; first += kOfHead) {
      double total = 0;
      Head sum(kOfHead);
      for (int64_t key = 0; key < kItems * kTokens; ++key) {
        if (!seen(row, key)) continue;
        const int64_t taken = key_of(row, key);
        double score = 0;
        for (int64_t j = first; j < first + kOfHead; ++j)
          score += static_cast<double>(q.row(row)[static_cast<size_t>(j)]) * k.row(taken)[static_cast<size_t>(j)];
        const double weight = std::exp(score / std::sqrt(static_cast<double>(kOfHead)));
        total += weight;
        for (int64_t j = 0; j < kOfHead; ++j)
          sum[static_cast<size_t>(j)] += weight * v.row(taken)[static_cast<size_t>(first + j)];
      }
      for (int64_t j = 0; j < kOfHead; ++j)
        out.row(row)[static_cast<size_t>(first + j)] = static_cast<float>(sum[static_cast<size_t>(j)] / total);
    }
  return out;
}

TEST(AttentionOperands, OtherItemsOfTheBatch) {
  const auto same_item = [](int64_t row, int64_t key) { return row / 7 == key / 7; };
  const auto itself = [](int64_t, int64_t key) { return key; };
  const auto run = [](const Values& y) {
    RunMaker out;
    out.add("net.attn.to_q", noise(y.shape, 1))
        .add("net.attn.to_k", noise(y.shape, 2))
        .add("net.attn.to_v", noise(y.shape, 3));
    out.in("net.attn.to_out", y).add("net.attn.to_out", y);
    return out;
  };
  const RunMaker right = run(attended_in_batch(same_item, itself));
  const auto cause = [&](const auto& seen, const auto& key_of) {
    return first_cause(right, run(attended_in_batch(seen, key_of)));
  };
  EXPECT_EQ(cause([](int64_t row, int64_t key) { return row % 7 == key % 7; }, itself), "layout.axes");
  EXPECT_EQ(cause([](int64_t, int64_t) { return true; }, itself), "attention.mask");
  EXPECT_EQ(cause(same_item, [](int64_t, int64_t key) { return key % 7; }), "stage.replaced");  // the first item's
  EXPECT_EQ(cause(same_item, [](int64_t row, int64_t key) { return (row * key * 5 + 3 * row + key) % 14; }), "");
}

TEST(AttentionOperands, HeadsOfATokenInPlaceOfTokens) {
  EXPECT_EQ(TwoStreams().cause({.across_heads = true}), "attention.heads");
}

}  // namespace
}  // namespace lockstep
