#pragma once
#include "backend/backend.h"

namespace lockstep::ops {

struct LinearOptions {
  Activation activation = Activation::kNone;
  const Tensor* multiply = nullptr;
  const Tensor* residual = nullptr;
  const Tensor* gate = nullptr;
  Tensor* out = nullptr;  // written there instead of into a new tensor: [..., N], contiguous in its last axis
};

Tensor linear(Backend& backend, const Tensor& x, const LinearWeight& weight,
              const LinearOptions& options = {});  // [..., K] → [..., N]

}  // namespace lockstep::ops
