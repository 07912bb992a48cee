#pragma once
#include "backend/cuda/device.h"
#include "backend/kernels.h"

namespace lockstep::cuda {

// cuDNN where it has a kernel; else two matrix products around a softmax, or for small sizes a kernel of our own. All
// tensors of one dtype: f32, bf16 or f16.
void attention(Device& device, const AttentionArgs& args);

}  // namespace lockstep::cuda
