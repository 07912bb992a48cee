#include "base/interrupt.h"
#include "models/qwen_vae/vae.h"

namespace lockstep::models {

using nn::Ctx;

VaeEncoder::VaeEncoder(const nn::Weights& w, const VaeConfig& config) {
  for (const char* unneeded : {"decoder.*", "post_quant_conv.*", "*.time_conv.*"}) w.ignore(unneeded);
  const nn::Weights encoder = w / "encoder";
  int64_t channels = config.base;
  conv_in_ = causal_conv(encoder, "conv_in", config.image_channels, channels, 3);
  for (size_t level = 0; level < config.multipliers.size(); ++level) {
    for (int r = 0; r < config.res_blocks; ++r) {
      const int64_t outputs = config.level_channels(level);
      Step step;
      step.resnet.emplace(encoder.at("down_blocks", static_cast<int>(steps_.size())), channels, outputs);
      steps_.push_back(std::move(step));
      channels = outputs;
    }
    if (level + 1 < config.multipliers.size()) {
      Step step;  // zeros at the right and the bottom only
      step.downsampler = nn::Conv(
          encoder.at("down_blocks", static_cast<int>(steps_.size())).conv2d("resample.1", channels, channels, 3), 2,
          {.bottom = 1, .right = 1});
      steps_.push_back(std::move(step));
    }
  }
  mid_.emplace(encoder / "mid_block", channels);
  norm_out_ = ChannelNorm(encoder, "norm_out", channels);
  conv_out_ = causal_conv(encoder, "conv_out", channels, 2 * config.latent_channels, 3);
  quant_ = causal_conv(w, "quant_conv", 2 * config.latent_channels, 2 * config.latent_channels, 1);
}

Tensor VaeEncoder::forward(const Tensor& image, const Ctx& ctx) const {
  const Ctx encoder = ctx / "encoder";
  Tensor x = conv_in_.forward(image, encoder / "conv_in");
  for (size_t i = 0; i < steps_.size(); ++i) {
    check_interrupt("generate");
    const Ctx step = encoder.at("down_blocks", static_cast<int>(i));
    if (steps_[i].resnet)
      x = steps_[i].resnet->forward(x, step);
    else
      x = step.tap_image(steps_[i].downsampler.forward(x, step / "resample.1", nullptr, false));  // [B, h/2, w/2, C]
  }
  x = mid_->forward(x, encoder / "mid_block");
  x = conv_out_.forward(norm_out_.forward(x, true, encoder / "norm_out"), encoder / "conv_out");
  return quant_.forward(encoder.tap_image(x), ctx / "quant_conv");  // [B, h, w, 2 * latent_channels]
}

}  // namespace lockstep::models
