#include "ops/elementwise.h"

#include "ops/check.h"

namespace lockstep::ops {

Tensor unary(Backend& backend, UnaryOp op, const Tensor& x) {
  expect_tensor(x, "unary", "x");
  Tensor out = backend.allocate(x.dtype(), x.shape());
  backend.unary({.op = op, .x = x, .out = out});
  return out;
}

Tensor binary(Backend& backend, BinaryOp op, const Tensor& a, const Tensor& b) {
  expect_tensor(a, "binary", "a");
  expect_tensor(b, "binary", "b");
  Tensor out = backend.allocate(a.dtype(), broadcast_shapes(a.shape(), b.shape()));
  backend.binary({.op = op, .a = a, .b = b, .out = out});
  return out;
}

Tensor add_gated(Backend& backend, const Tensor& x, const Tensor& gate, const Tensor& y) {
  expect_rank(x, 3, "add_gated", "x is [B, N, D]");
  expect_shape(y, x.shape(), "add_gated", "y");
  expect_shape(gate, {x.dim(0), x.dim(2)}, "add_gated", "gate");
  Tensor out = backend.allocate(x.dtype(), x.shape());
  backend.add_gated({.x = x, .gate = gate, .y = y, .out = out});
  return out;
}

Tensor gather(Backend& backend, const Tensor& table, const Tensor& ids) {
  expect_rank(table, 2, "gather", "table is [V, D]");
  expect_rank(ids, 1, "gather", "ids is [n]");
  if (ids.dtype() != DType::kI64)
    fail(Code::kBadInput, "gather", "ids", {.expected = "i64", .got = std::string(dtype_name(ids.dtype()))});
  Tensor out = backend.allocate(table.dtype(), {ids.dim(0), table.dim(1)});
  backend.gather({.table = table, .ids = ids, .out = out});
  return out;
}

Tensor guidance(Backend& backend, const Tensor& cond, const Tensor& uncond, float scale, bool rescale) {
  expect_shape(uncond, cond.shape(), "guidance", "uncond");
  Tensor out = backend.allocate(cond.dtype(), cond.shape());
  backend.guidance({.cond = cond, .uncond = uncond, .out = out, .scale = scale, .rescale = rescale});
  return out;
}

Tensor cast(Backend& backend, const Tensor& x, DType dtype) {
  expect_tensor(x, "cast", "x");
  if (x.dtype() == dtype) return x;
  Tensor out = backend.allocate(dtype, x.shape());
  backend.copy({.from = x, .to = out});
  return out;
}

Tensor contiguous(Backend& backend, const Tensor& x) {
  expect_tensor(x, "contiguous", "x");
  if (x.is_contiguous()) return x;
  Tensor out = backend.allocate(x.dtype(), x.shape());
  backend.copy({.from = x, .to = out});
  return out;
}

Tensor concat(Backend& backend, const Tensor& a, const Tensor& b, int axis) {
  Shape shape = a.shape();
  const size_t at = static_cast<size_t>(axis < 0 ? axis + static_cast<int>(a.rank()) : axis);
  if (at >= shape.size() || b.rank() != a.rank())
    fail(Code::kBadInput, "concat", "axis or ranks do not fit",
         {.expected = to_string(a.shape()), .got = to_string(b.shape())});
  shape[at] = b.shape()[at];
  expect_shape(b, shape, "concat", "sizes differ outside the axis");
  shape[at] += a.shape()[at];
  Tensor out = backend.allocate(a.dtype(), shape);
  copy_into(backend, a, out.slice(axis, 0, a.dim(axis)));
  copy_into(backend, b, out.slice(axis, a.dim(axis), shape[at]));
  return out;
}

Tensor euler_step(Backend& backend, const Tensor& x, const Tensor& velocity, float dt) {
  expect_shape(velocity, x.shape(), "euler_step", "velocity");
  Tensor out = backend.allocate(velocity.dtype(), x.shape());
  backend.euler_step({.x = x, .velocity = velocity, .out = out, .dt = dt});
  return out;
}

Tensor denormalize(Backend& backend, const Tensor& x, const Tensor& inverse_std, const Tensor& mean) {
  if (x.rank() < 2) fail(Code::kBadInput, "denormalize", "x is [B, C, ...]", {.got = to_string(x.shape())});
  expect_shape(inverse_std, {x.dim(1)}, "denormalize", "inverse_std");
  expect_shape(mean, {x.dim(1)}, "denormalize", "mean");
  const Tensor packed = contiguous(backend, x);
  Tensor out = backend.allocate(x.dtype(), x.shape());
  backend.denormalize({.x = packed, .inverse_std = inverse_std, .mean = mean, .out = out});
  return out;
}

Tensor pixels(Backend& backend, const Tensor& x) {
  const Tensor packed = contiguous(backend, x);
  Tensor out = backend.allocate(DType::kU8, x.shape());
  backend.pixels({.x = packed, .out = out});
  return out;
}

void copy_into(Backend& backend, const Tensor& from, Tensor to) {
  expect_shape(from, to.shape(), "copy", "shapes differ");
  backend.copy({.from = from, .to = to});
}

}  // namespace lockstep::ops
