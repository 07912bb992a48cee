// Runs made in memory for the tests of comparing: records in execution order with values that are known.
#pragma once
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "compare/comparison.h"
#include "compare/map_proposal.h"
#include "tensor/float_formats.h"

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

// Candidate's name → reference's, for outputs.
inline std::map<std::string, std::string> partners_of(const RunMaker& reference, const RunMaker& port) {
  std::map<std::string, std::string> out;
  for (const ProposedRule& rule : propose_map(reference.run, port.run, {}, ""))
    if (!rule.rule.input.value_or(false)) out[rule.rule.candidate] = rule.rule.reference;
  return out;
}

inline Comparison compared(const RunMaker& reference, const RunMaker& candidate,
                           std::shared_ptr<const WeightSource> weights = nullptr) {
  CompareOptions options;
  options.weights_reference = std::move(weights);
  return compare_runs(reference.run, candidate.run, options);
}

inline std::string first_cause(const Comparison& result) {
  return result.causes.empty() ? "" : std::string(result.causes[0].cause.id());
}

inline std::string first_cause(const RunMaker& reference, const RunMaker& candidate,
                               std::shared_ptr<const WeightSource> weights = nullptr) {
  return first_cause(compared(reference, candidate, std::move(weights)));
}

inline double silu(double x) {
  return x / (1 + std::exp(-x));
}
inline double bf16(double x) {
  return float_from(bfloat16_from(static_cast<float>(x)));
}
inline double f16(double x) {
  return float_from(half_from(static_cast<float>(x)));
}

}  // namespace lockstep::synthetic
