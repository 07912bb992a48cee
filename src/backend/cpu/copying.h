// Kernels that move values without computing: strided copies and casts, gathers, nearest upsampling.
#pragma once
#include "backend/kernels.h"

namespace lockstep::cpu {

void copy(const CopyArgs& args, int threads);
void gather(const GatherArgs& args, int threads);

// The tensor in another dtype: itself when nothing changes.
Tensor converted(const Tensor& tensor, DType dtype, int threads);

}  // namespace lockstep::cpu
