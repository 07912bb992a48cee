// Two tensors of which only statistics were kept: how far apart they are at least.
#pragma once
#include <optional>

#include "tensor/statistics.h"

namespace lockstep {

// A lower bound of ||candidate - reference|| / ||reference|| from mean, rms and extremes: 0 proves nothing, a large
// value proves a difference. Infinite when NaN or infinities are counted on one side only.
double least_error(const Statistics& candidate, const Statistics& reference);

}  // namespace lockstep
