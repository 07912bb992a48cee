#pragma once
#include "backend/backend.h"

namespace lockstep::ops {

Tensor rms_norm(Backend& backend, const Tensor& x, const Tensor& weight, float eps);
Tensor layer_norm(Backend& backend, const Tensor& x, float eps);  // no affine
Tensor norm_modulate(Backend& backend, const Tensor& x, const Tensor& shift, const Tensor& scale,
                     float eps);  // x [B, N, D]; shift, scale [B, D]
Tensor channel_norm(Backend& backend, const Tensor& x, const Tensor& gamma, bool silu);  // x [..., C]
void head_norm_rope(Backend& backend, const HeadNormRopeArgs& args);                     // into args.out

}  // namespace lockstep::ops
