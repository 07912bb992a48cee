#pragma once
#include "backend/backend.h"

namespace lockstep::ops {

Tensor unary(Backend& backend, UnaryOp op, const Tensor& x);
Tensor binary(Backend& backend, BinaryOp op, const Tensor& a, const Tensor& b);
Tensor add_gated(Backend& backend, const Tensor& x, const Tensor& gate,
                 const Tensor& y);                                        // x + gate * y; x, y [B, N, D]; gate [B, D]
Tensor gather(Backend& backend, const Tensor& table, const Tensor& ids);  // [V, D], i64 [n] → [n, D]
Tensor guidance(Backend& backend, const Tensor& cond, const Tensor& uncond, float scale,
                bool rescale = true);  // true CFG, with the norm rescale or without
Tensor cast(Backend& backend, const Tensor& x, DType dtype);
Tensor contiguous(Backend& backend, const Tensor& x);  // itself, or a packed copy
Tensor concat(Backend& backend, const Tensor& a, const Tensor& b, int axis);
Tensor euler_step(Backend& backend, const Tensor& x, const Tensor& velocity, float dt);  // see EulerStepArgs
Tensor denormalize(Backend& backend, const Tensor& x, const Tensor& inverse_std,
                   const Tensor& mean);                           // x [B, C, ...]; inverse_std, mean f32 [C]
Tensor pixels(Backend& backend, const Tensor& x);                 // [-1, 1] → u8
void copy_into(Backend& backend, const Tensor& from, Tensor to);  // any strides, any dtypes

}  // namespace lockstep::ops
