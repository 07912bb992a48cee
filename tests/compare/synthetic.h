// Runs made in memory for the tests of comparing: records in execution order with values that are known.
#pragma once
#include <random>

#include "compare/comparison.h"

namespace lockstep::synthetic {

inline Values noise(const Shape& shape, unsigned seed, float scale = 1) {
  Values out = make_values(shape);
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, scale);
  for (float& value : out.v) value = normal(engine);
  return out;
}

class RunMaker {
 public:
  RunMaker& add(const std::string& name, const Values& values, Role role = Role::kOutput, int step = -1,
                const Tags& tags = {}) {
    RecordedTensor record;
    record.key = {name, step, 0, tags};
    record.role = role;
    record.shape = values.shape;
    const Tensor tensor = Tensor::from<float>(values.shape, values.v);
    record.load = [tensor] { return tensor; };
    run.records.push_back(std::move(record));
    return *this;
  }
  RunMaker& in(const std::string& name, const Values& values) { return add(name, values, Role::kInput); }
  RunView run;
};

template <typename Function>
Values mapped(const Values& x, Function f) {
  Values out = x;
  for (float& value : out.v) value = static_cast<float>(f(static_cast<double>(value)));
  return out;
}

inline Values with_rounding(const Values& x, unsigned seed, float relative = 1e-7f) {
  Values out = x;
  const Values e = noise(x.shape, seed, relative);
  for (size_t i = 0; i < out.v.size(); ++i) out.v[i] *= 1 + e.v[i];
  return out;
}

}  // namespace lockstep::synthetic
