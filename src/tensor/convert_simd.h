// The conversions that are worth vectors: between f32 and the small floats. One source, the best instruction set of the
// machine chosen at run time.
#pragma once
#include <cstdint>

#include "tensor/dtype.h"

namespace lockstep {

// Contiguous, aligned to their elements. `small` is bf16, f16, f8_e4m3fn or f8_e5m2.
void widen_to_f32(const void* from, DType small, float* to, int64_t count);
void narrow_from_f32(const float* from, DType small, void* to, int64_t count);

}  // namespace lockstep
