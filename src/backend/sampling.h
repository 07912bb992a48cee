// The sampling loop's kernels in host memory, for every backend that computes there: the roundings are part of the
// result, so there is one copy of them.
#pragma once
#include "backend/kernels.h"

namespace lockstep {

void euler_step_on_host(const EulerStepArgs& args);
void denormalize_on_host(const DenormalizeArgs& args);
void pixels_on_host(const PixelsArgs& args);

}  // namespace lockstep
