#pragma once
#include "backend/backend.h"

namespace lockstep::ops {

struct Padding {
  int top = 0, left = 0, bottom = 0, right = 0;
};

Tensor conv2d(Backend& backend, const Tensor& x, const ConvWeight& weight, int stride, const Padding& padding,
              const Tensor* residual = nullptr);  // [B, H, W, C] → [B, Ho, Wo, O]

}  // namespace lockstep::ops
