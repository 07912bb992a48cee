// A run names its components by the pipeline's attributes or by the root's class; a checkpoint given by itself has no
// component at all, or its folder's. Which is which is found by the names that fit.
#pragma once
#include <memory>

#include "diagnose/case/run_view.h"
#include "diagnose/case/weight_source.h"

namespace lockstep {

// The same weights under the names that the run's modules have; the source itself where they fit already.
std::shared_ptr<const WeightSource> named_as_in(const RunView& run, std::shared_ptr<const WeightSource> weights);

// How many of the run's modules have a weight there.
size_t modules_with_weights(const RunView& run, const WeightSource& weights);

}  // namespace lockstep
