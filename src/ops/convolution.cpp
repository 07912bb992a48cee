#include "ops/convolution.h"

#include "ops/check.h"

namespace lockstep::ops {

Tensor conv2d(Backend& backend, const Tensor& x, const ConvWeight& weight, int stride, const Padding& padding,
              const Tensor* residual) {
  expect_rank(x, 4, "conv2d", "x is [B, H, W, C]");
  expect_rank(weight.weight, 4, "conv2d", "weight is [O, I, kh, kw]");
  if (padding.top < 0 || padding.left < 0 || padding.bottom < 0 || padding.right < 0)
    fail(Code::kBadInput, "conv2d", "a negative padding");
  if (x.dim(3) != weight.weight.dim(1) || stride < 1)
    fail(Code::kBadInput, "conv2d", "channels of x and weight differ, or the stride is below 1",
         {.expected = std::to_string(weight.weight.dim(1)) + " channels", .got = to_string(x.shape())});
  const int64_t height = x.dim(1) + padding.top + padding.bottom - weight.weight.dim(2);
  const int64_t width = x.dim(2) + padding.left + padding.right - weight.weight.dim(3);
  if (height < 0 || width < 0)
    fail(Code::kBadInput, "conv2d", "the kernel is larger than the padded image", {.got = to_string(x.shape())});
  const Shape shape{x.dim(0), height / stride + 1, width / stride + 1, weight.weight.dim(0)};
  if (residual) expect_shape(*residual, shape, "conv2d", "residual");
  Tensor out = backend.allocate(x.dtype(), shape);
  backend.conv2d({.x = x,
                  .weight = weight,
                  .out = out,
                  .stride = stride,
                  .pad_top = padding.top,
                  .pad_left = padding.left,
                  .pad_bottom = padding.bottom,
                  .pad_right = padding.right,
                  .residual = residual});
  return out;
}

}  // namespace lockstep::ops
