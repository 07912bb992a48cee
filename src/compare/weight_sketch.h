// The weights that a run's modules hold, known by numbers that neither their layout nor their names change.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "diagnose/case/run_view.h"
#include "diagnose/case/weight_source.h"

namespace lockstep {

struct WeightSketch {
  int64_t count = 0;
  double rms = 0, mean = 0, low = 0, high = 0;
};
using ModuleWeights = std::map<std::string, std::vector<WeightSketch>>;  // by module

// From the run's own record of them (`modules` of run.json).
ModuleWeights recorded_weights(const RunView& run);
// From a checkpoint whose names are the run's, for modules that the run has.
ModuleWeights checkpoint_weights(const RunView& run, const WeightSource& weights);

// 1: all are the same tensors; 0: none is; below: one side has none.
double same_weights(const std::vector<WeightSketch>& a, const std::vector<WeightSketch>& b);

}  // namespace lockstep
