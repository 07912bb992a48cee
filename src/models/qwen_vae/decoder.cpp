#include "base/interrupt.h"
#include "models/qwen_vae/vae.h"

namespace lockstep::models {

using nn::Ctx;

VaeDecoder::VaeDecoder(const nn::Weights& w, const VaeConfig& config) {
  for (const char* unneeded : {"encoder.*", "quant_conv.*", "*.time_conv.*"}) w.ignore(unneeded);
  const nn::Weights decoder = w / "decoder";
  const size_t levels = config.multipliers.size();
  const int64_t widest = config.level_channels(levels - 1);
  post_quant_ = causal_conv(w, "post_quant_conv", config.latent_channels, config.latent_channels, 1);
  conv_in_ = causal_conv(decoder, "conv_in", config.latent_channels, widest, 3);
  mid_.emplace(decoder / "mid_block", widest);
  int64_t channels = widest;
  for (size_t i = 0; i < levels; ++i) {
    const nn::Weights block = decoder.at("up_blocks", static_cast<int>(i));
    const int64_t outputs = config.level_channels(levels - 1 - i);
    Level level;
    for (int r = 0; r <= config.res_blocks; ++r) {
      level.resnets.emplace_back(block.at("resnets", r), channels, outputs);
      channels = outputs;
    }
    if (i + 1 < levels) {  // an upsampler halves the channels
      level.upsampler = nn::UpsampledConv(block.at("upsamplers", 0), "resample.1", channels, channels / 2);
      channels /= 2;
    }
    levels_.push_back(std::move(level));
  }
  norm_out_ = ChannelNorm(decoder, "norm_out", channels);
  conv_out_ = causal_conv(decoder, "conv_out", channels, config.image_channels, 3);
}

Tensor VaeDecoder::forward(const Tensor& z, const Ctx& ctx) const {
  const Ctx decoder = ctx / "decoder";
  Tensor x = conv_in_.forward(post_quant_.forward(z, ctx / "post_quant_conv"), decoder / "conv_in");
  x = mid_->forward(x, decoder / "mid_block");  // [B, h, w, widest]
  for (size_t i = 0; i < levels_.size(); ++i) {
    const Ctx block = decoder.at("up_blocks", static_cast<int>(i));
    for (size_t r = 0; r < levels_[i].resnets.size(); ++r) {
      check_interrupt("generate");
      x = levels_[i].resnets[r].forward(x, block.at("resnets", static_cast<int>(r)));
      ctx.backend().flush();
    }
    if (levels_[i].upsampler.defined()) {
      const Ctx upsampler = block.at("upsamplers", 0);
      x = levels_[i].upsampler.forward(x, upsampler / "resample.1");  // [B, 2h, 2w, C/2]
      x = upsampler.tap_image(x);
    }
    x = block.tap_image(x);
  }
  return decoder.tap_image(
      conv_out_.forward(norm_out_.forward(x, true, decoder / "norm_out"), decoder / "conv_out"));  // [B, 8h, 8w, 3]
}

}  // namespace lockstep::models
