// Weights written out as panels of 64 columns: dense ones of any float dtype, and MLX affine quantised ones,
// dequantised on the way. See panel.h for the layouts.
#pragma once
#include "backend/kernels.h"

namespace lockstep::cpu {

// Columns [column, column + 64) (outputs of the layer; beyond the last: zeros), rows [k, k + count) of the panel.
// `to` is f32 or bf16, as `dtype` says. For bf16, k is even and an odd count is filled up with zeros. For quantised
// weights k is a multiple of the group size.
void pack_panel(const LinearWeight& weight, int64_t column, int64_t k, int64_t count, DType dtype, void* to);

}  // namespace lockstep::cpu
