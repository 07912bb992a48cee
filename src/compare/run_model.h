// The checkpoint that a run's program loaded, as far as the run says which it was and it can still be read.
#pragma once
#include <memory>

#include "diagnose/case/run_view.h"
#include "diagnose/case/weight_source.h"

namespace lockstep {

// Null where the run does not name its model, or the model is not on this machine.
std::shared_ptr<const WeightSource> weights_of_run(const RunView& run);

}  // namespace lockstep
