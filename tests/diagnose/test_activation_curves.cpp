// Activations that are none of the known ones: told by their form and its number where they have one, else as a curve.
#include <gtest/gtest.h>

#include <cmath>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
}

// A module around a projection and its activation: only what the projection gives and the result are recorded.
struct Activated {
  Values in = noise({1, 40, 16}, 1), x = noise({1, 40, 32}, 2, 1.5f), up = noise({1, 40, 32}, 3);
  RunMaker around(const Values& y) const {
    RunMaker out;
    return out.in("net.act", in).in("net.act.proj", in).add("net.act.proj", x).add("net.act", y).in("net.out", y);
  }
  RunMaker gated(const Values& y) const {
    RunMaker out;
    return out.in("net", in).in("net.gate", in).add("net.gate", x).in("net.up", in).add("net.up", up).in("net.down", y);
  }
  template <typename Function>
  Values product(Function f) const {
    Values y = mapped(x, f);
    for (size_t i = 0; i < y.v.size(); ++i) y.v[i] *= up.v[i];
    return y;
  }
};

TEST(ActivationCurves, FormsWithOtherNumbers) {
  const Activated a;
  const auto says = [&](auto&& f, const std::string& words, const RunMaker& right, bool product) {
    const Comparison result = compared(right, product ? a.gated(a.product(f)) : a.around(mapped(a.x, f)));
    EXPECT_EQ(first_cause(result), "activation.kind") << words;
    if (!result.causes.empty()) {
      EXPECT_NE(result.causes[0].explanation.find(words), std::string::npos) << result.causes[0].explanation;
    }
  };
  for (const bool product : {false, true}) {
    const RunMaker right = product ? a.gated(a.product(gelu)) : a.around(mapped(a.x, gelu));
    says([](double x) { return 0.5 * x * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x))); }, "0.044715 x^2",
         right, product);
    says([](double x) { return 0.5 * x * (1 + std::tanh(0.7978845608 * (x + 0.0147 * x * x * x))); }, "0.0147 x^3",
         right, product);
    says([](double x) { return 0.5 * x * (1 + std::tanh(0.8862 * (x + 0.044715 * x * x * x))); }, "0.8862", right,
         product);
    says([](double x) { return x / (1 + std::exp(-1.6 * x)); }, "sigmoid(1.6 x)", right, product);
    says([](double x) { return 0.5 * x * (1 + std::erf(0.5 * x)); }, "erf(0.5 x)", right, product);
    says([](double x) { return x > 0 ? x : 0.3 * x; }, "leaky ReLU(x), 0.3", right, product);
    says([](double x) { return x > 0 ? x : 0.5 * std::expm1(x); }, "ELU(x), 0.5", right, product);
    says([](double x) { return x * std::tanh(std::log1p(std::exp(2 * x))); }, "Mish(x) of 2 x, over 2", right, product);
    says([](double x) { return gelu(x) + 0.2 * std::sin(2 * x); }, "furthest off", right, product);
  }
}

TEST(ActivationCurves, WhatIsNoFunctionOfTheInputIsNone) {
  const Activated a;
  const Values y = mapped(a.x, gelu), e = noise(a.x.shape, 4, 0.02f);
  Values noisy = y, shifted = y;
  for (size_t i = 0; i < y.v.size(); ++i) noisy.v[i] += e.v[i], shifted.v[i] += e.v[i % 32] * 10;
  EXPECT_EQ(first_cause(a.around(y), a.around(noisy)), "");
  EXPECT_NE(first_cause(a.around(y), a.around(shifted)), "activation.kind");
}

}  // namespace
}  // namespace lockstep
