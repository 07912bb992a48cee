// A linear layer with noise for weights, run once with the right weight and once with another.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "support/synthetic.h"

namespace lockstep::synthetic {

struct PackedLayer {
  Values x, w;
  std::vector<float> bias;
  PackedLayer(int64_t rows, int64_t inputs, int64_t outputs)
      : x(noise({1, rows, inputs}, 1)), w(noise({outputs, inputs}, 2)), bias(noise({outputs}, 3).v) {}

  Values product(const Values& weight) const {
    Values y = make_values({1, x.rows(), weight.rows()});
    for (int64_t t = 0; t < x.rows(); ++t)
      for (int64_t j = 0; j < weight.rows(); ++j) {
        double sum = bias[static_cast<size_t>(j)];
        for (size_t k = 0; k < x.row(t).size(); ++k) sum += static_cast<double>(x.row(t)[k]) * weight.row(j)[k];
        y.row(t)[static_cast<size_t>(j)] = static_cast<float>(sum);
      }
    return y;
  }
  Comparison with(const Values& weight) const {
    auto weights = std::make_shared<MemoryWeights>();
    weights->add("net.m.weight", w), weights->add("net.m.bias", {{w.rows()}, bias});
    RunMaker a, b;
    a.in("net.m", x).add("net.m", product(w)), b.in("net.m", x).add("net.m", product(weight));
    return compared(a, b, weights);
  }
  std::string cause(const Values& weight) const { return first_cause(with(weight)); }
  // Yours gives this instead.
  std::string cause_of(const Values& y) const {
    auto weights = std::make_shared<MemoryWeights>();
    weights->add("net.m.weight", w), weights->add("net.m.bias", {{w.rows()}, bias});
    RunMaker a, b;
    a.in("net.m", x).add("net.m", product(w)), b.in("net.m", x).add("net.m", y);
    return first_cause(a, b, weights);
  }
};

}  // namespace lockstep::synthetic
