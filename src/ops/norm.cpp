#include "ops/norm.h"

#include "ops/check.h"

namespace lockstep::ops {

Tensor rms_norm(Backend& backend, const Tensor& x, const Tensor& weight, float eps) {
  expect_shape(weight, {x.dim(-1)}, "rms_norm", "weight");
  Tensor out = backend.allocate(x.dtype(), x.shape());
  backend.rms_norm({.x = x, .weight = &weight, .out = out, .eps = eps});
  return out;
}

Tensor layer_norm(Backend& backend, const Tensor& x, float eps) {
  Tensor out = backend.allocate(x.dtype(), x.shape());
  backend.layer_norm({.x = x, .out = out, .eps = eps});
  return out;
}

Tensor norm_modulate(Backend& backend, const Tensor& x, const Tensor& shift, const Tensor& scale, float eps) {
  expect_rank(x, 3, "norm_modulate", "x is [B, N, D]");
  expect_shape(shift, {x.dim(0), x.dim(2)}, "norm_modulate", "shift");
  expect_shape(scale, {x.dim(0), x.dim(2)}, "norm_modulate", "scale");
  Tensor out = backend.allocate(x.dtype(), x.shape());
  backend.layer_norm({.x = x, .out = out, .eps = eps, .scale = &scale, .shift = &shift});
  return out;
}

Tensor channel_norm(Backend& backend, const Tensor& x, const Tensor& gamma, bool silu) {
  expect_shape(gamma, {x.dim(-1)}, "channel_norm", "gamma");
  Tensor out = backend.allocate(x.dtype(), x.shape());
  backend.channel_norm({.x = x, .gamma = gamma, .out = out, .silu = silu});
  return out;
}

void head_norm_rope(Backend& backend, const HeadNormRopeArgs& args) {
  expect_rank(args.x, 4, "head_norm_rope", "x is [B, S, H, D]");
  expect_shape(args.out, args.x.shape(), "head_norm_rope", "out");
  if (args.weight) expect_shape(*args.weight, {args.x.dim(3)}, "head_norm_rope", "weight");
  if (args.style != RopeStyle::kNone) {
    if (!args.cos || !args.sin || args.x.dim(3) % 2 != 0)
      fail(Code::kBadInput, "head_norm_rope", "a rotation needs cos, sin and an even head width");
    expect_shape(*args.cos, {args.x.dim(1), args.x.dim(3) / 2}, "head_norm_rope", "cos");
    expect_shape(*args.sin, {args.x.dim(1), args.x.dim(3) / 2}, "head_norm_rope", "sin");
  }
  backend.head_norm_rope(args);
}

}  // namespace lockstep::ops
