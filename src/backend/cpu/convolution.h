// Convolutions as products of gathered rows with panels, for builds without oneDNN.
#pragma once
#include "backend/cpu/features.h"
#include "backend/cpu/onednn.h"
#include "backend/kernels.h"

namespace lockstep::cpu {

// x, out and residual have the filter's dtype and are contiguous.
void convolve_by_panels(const Conv2dArgs& args, const PackedFilter& filter, int threads, Level level);

}  // namespace lockstep::cpu
