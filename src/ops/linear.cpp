#include "ops/linear.h"

#include "ops/check.h"

namespace lockstep::ops {

Tensor linear(Backend& backend, const Tensor& x, const LinearWeight& weight, const LinearOptions& options) {
  expect_tensor(x, "linear", "x");
  expect_tensor(weight.weight, "linear", "weight");
  expect_rank(weight.weight, 2, "linear", "weight is [N, K]");
  if (x.rank() < 1 || x.dim(-1) != weight.inputs())
    fail(Code::kBadInput, "linear", "the last axis of x is not the weight's input width",
         {.expected = std::to_string(weight.inputs()), .got = to_string(x.shape())});
  Shape shape = x.shape();
  shape.back() = weight.outputs();
  if (weight.bias.defined()) expect_shape(weight.bias, {weight.outputs()}, "linear", "bias");
  if (options.multiply) expect_shape(*options.multiply, shape, "linear", "multiply");
  if (options.residual) expect_shape(*options.residual, shape, "linear", "residual");
  if (options.gate) {
    expect_rank(x, 3, "linear", "a gated residual needs x as [B, M, K]");
    expect_shape(*options.gate, {x.dim(0), weight.outputs()}, "linear", "gate");
    if (!options.residual) fail(Code::kBadInput, "linear", "a gate without a residual");
  }
  if (options.out) expect_shape(*options.out, shape, "linear", "out");
  Tensor out = options.out ? *options.out : backend.allocate(x.dtype(), shape);
  backend.linear({.x = x,
                  .weight = weight,
                  .out = out,
                  .activation = options.activation,
                  .multiply = options.multiply,
                  .residual = options.residual,
                  .gate = options.gate});
  return out;
}

}  // namespace lockstep::ops
