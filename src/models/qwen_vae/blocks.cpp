#include "models/qwen_vae/blocks.h"

#include <cmath>

#include "ops/attention.h"

namespace lockstep::models {

using nn::Ctx;

Tensor ChannelNorm::forward(const Tensor& x, bool silu, const Ctx& ctx, bool frame_axis) const {
  Backend& backend = ctx.backend();
  if (!ctx.listening()) return ops::channel_norm(backend, x, gamma_, silu);
  ctx.tap_image_input(x, frame_axis);
  const Tensor y = ctx.tap_image(ops::channel_norm(backend, x, gamma_, false), frame_axis);
  return silu ? ops::unary(backend, UnaryOp::kSilu, y) : y;
}

nn::Conv causal_conv(const nn::Weights& weights, std::string_view name, int64_t inputs, int64_t outputs, int kernel) {
  const int pad = kernel / 2;
  return nn::Conv(weights.conv3d_newest_tap(name, inputs, outputs, kernel), 1, {pad, pad, pad, pad});
}

ResidualBlock::ResidualBlock(const nn::Weights& w, int64_t inputs, int64_t outputs)
    : norm1_(w, "norm1", inputs),
      norm2_(w, "norm2", outputs),
      conv1_(causal_conv(w, "conv1", inputs, outputs, 3)),
      conv2_(causal_conv(w, "conv2", outputs, outputs, 3)) {
  if (inputs != outputs) shortcut_ = causal_conv(w, "conv_shortcut", inputs, outputs, 1);
}

Tensor ResidualBlock::forward(const Tensor& x, const Ctx& ctx) const {
  const Tensor residual = shortcut_.defined() ? shortcut_.forward(x, ctx / "conv_shortcut") : x;
  const Tensor h = conv1_.forward(norm1_.forward(x, true, ctx / "norm1"), ctx / "conv1");
  return ctx.tap_image(
      conv2_.forward(norm2_.forward(h, true, ctx / "norm2"), ctx / "conv2", &residual));  // [B, H, W, C]
}

ImageAttention::ImageAttention(const nn::Weights& w, int64_t channels)
    : norm_(w, "norm", channels),
      to_qkv_(w.conv2d("to_qkv", channels, 3 * channels, 1)),
      proj_(w.conv2d("proj", channels, channels, 1)),
      channels_(channels) {}

Tensor ImageAttention::forward(const Tensor& x, const Ctx& ctx) const {
  const int64_t batch = x.dim(0), pixels = x.dim(1) * x.dim(2);
  const Tensor qkv = to_qkv_.forward(norm_.forward(x, false, ctx / "norm", false), ctx / "to_qkv", nullptr, false)
                         .reshape({batch, pixels, 3, channels_});
  const auto part = [&](int64_t i) {
    return qkv.slice(2, i, i + 1);
  };  // [B, H * W, 1, C]: one head as wide as the image is deep
  const float scale = 1.0f / std::sqrt(static_cast<float>(channels_));
  const Tensor y = ops::attention(ctx.backend(), part(0), part(1), part(2), {.scale = scale}).reshape(x.shape());
  return ctx.tap_image(proj_.forward(y, ctx / "proj", &x, false));
}

MidBlock::MidBlock(const nn::Weights& w, int64_t channels)
    : first_(w.at("resnets", 0), channels, channels),
      attention_(w.at("attentions", 0), channels),
      second_(w.at("resnets", 1), channels, channels) {}

Tensor MidBlock::forward(const Tensor& x, const Ctx& ctx) const {
  const Tensor y = attention_.forward(first_.forward(x, ctx.at("resnets", 0)), ctx.at("attentions", 0));
  return ctx.tap_image(second_.forward(y, ctx.at("resnets", 1)));
}

}  // namespace lockstep::models
