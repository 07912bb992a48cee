#include "nn/layers.h"

namespace lockstep::nn {

Tensor FeedForward::hidden(const Tensor& x, const Ctx& ctx) const {
  Backend& backend = ctx.backend();
  Tensor hidden;
  if (ctx.listening_to("net.0.proj"))
    hidden = ops::unary(backend, UnaryOp::kGeluTanh, in_.forward(x, ctx / "net.0.proj"));
  else
    hidden = ops::linear(backend, x, in_.weight(), {.activation = Activation::kGeluTanh});
  return (ctx / "net.0").tap(std::move(hidden));  // [B, N, hidden]
}

Tensor FeedForward::forward(const Tensor& x, const Ctx& ctx) const {
  return ctx.tap(out_.forward(hidden(x, ctx), ctx / "net.2"));
}

Tensor FeedForward::forward(const Tensor& x, const Tensor& residual, const Tensor& gate, const Ctx& ctx) const {
  if (ctx.listening() || ctx.listening_to("net.2"))
    return ops::add_gated(ctx.backend(), residual, gate, forward(x, ctx));
  return ops::linear(ctx.backend(), hidden(x, ctx), out_.weight(), {.residual = &residual, .gate = &gate});
}

Tensor Conv::forward(const Tensor& x, const Ctx& ctx, const Tensor* residual, bool frame_axis) const {
  Backend& backend = ctx.backend();
  // Uneven zeros are put there by a module of their own in the official code: what goes into the convolution has them.
  const bool padded_before = padding_.top != padding_.bottom || padding_.left != padding_.right;
  if (!padded_before) ctx.tap_image_input(x, frame_axis);
  if (residual && ctx.listening()) {
    const Tensor y = ctx.tap_image(ops::conv2d(backend, x, weight_, stride_, padding_), frame_axis);
    return ops::binary(backend, BinaryOp::kAdd, y, *residual);
  }
  Tensor y = ops::conv2d(backend, x, weight_, stride_, padding_, residual);
  return residual ? y : ctx.tap_image(std::move(y), frame_axis);
}

}  // namespace lockstep::nn
