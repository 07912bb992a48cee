#include "nn/upsampled_conv.h"

namespace lockstep::nn {

UpsampledConv::UpsampledConv(const Weights& weights, std::string_view name, int64_t inputs, int64_t outputs)
    : phases_(weights.conv2d_of_doubled(name, inputs, outputs)) {}

Tensor UpsampledConv::forward(const Tensor& x, const Ctx& ctx) const {
  Backend& backend = ctx.backend();
  const int64_t batch = x.dim(0), height = x.dim(1), width = x.dim(2), outputs = phases_[0].weight.dim(0);
  Tensor out = backend.allocate(x.dtype(), {batch, 2 * height, 2 * width, outputs});
  // [B, H, row parity, W, column parity, O]: a phase is every second row and column.
  const Tensor woven = out.reshape({batch, height, 2, width, 2, outputs});
  for (int phase = 0; phase < 4; ++phase) {
    const int row = phase / 2, column = phase % 2;
    const Tensor part = ops::conv2d(backend, x, phases_[static_cast<size_t>(phase)], 1,
                                    {.top = 1 - row, .left = 1 - column, .bottom = row, .right = column});
    ops::copy_into(backend, part, woven.select(4, column).select(2, row));  // [B, H, W, O]
  }
  return ctx.tap_image(std::move(out), false);
}

}  // namespace lockstep::nn
