// The autoencoder of Qwen-Image for single images: latents to pixels and back.
#pragma once
#include <optional>
#include <vector>

#include "models/qwen_vae/blocks.h"
#include "models/qwen_vae/config.h"
#include "nn/upsampled_conv.h"

namespace lockstep::models {

class VaeDecoder {
 public:
  VaeDecoder(const nn::Weights& weights, const VaeConfig& config);
  Tensor forward(const Tensor& z,
                 const nn::Ctx& ctx) const;  // [B, h, w, latent_channels] → [B, 8h, 8w, 3], not clamped

 private:
  struct Level {
    std::vector<ResidualBlock> resnets;
    nn::UpsampledConv upsampler;  // undefined on the last level
  };
  nn::Conv post_quant_, conv_in_, conv_out_;
  std::optional<MidBlock> mid_;
  std::vector<Level> levels_;
  ChannelNorm norm_out_;
};

class VaeEncoder {
 public:
  VaeEncoder(const nn::Weights& weights, const VaeConfig& config);
  Tensor forward(const Tensor& image, const nn::Ctx& ctx)
      const;  // [B, H, W, 3] → [B, H/8, W/8, 2 * latent_channels]: mean, then log variance

 private:
  struct Step {  // the official list is flat: residual blocks and downsamplers count alike
    std::optional<ResidualBlock> resnet;
    nn::Conv downsampler;
  };
  nn::Conv conv_in_, conv_out_, quant_;
  std::vector<Step> steps_;
  std::optional<MidBlock> mid_;
  ChannelNorm norm_out_;
};

struct Tiling {  // in pixels, as the official defaults
  int64_t tile_height = 256, tile_width = 256, stride_height = 192, stride_width = 192;
};

// Latents [B, C, 1, h, w] as the official module takes them → pixels [B, H, W, 3] in [-1, 1]. Tiles when asked and
// larger than a tile.
Tensor decode_latents(const VaeDecoder& decoder, const VaeConfig& config, const Tensor& latents,
                      const std::optional<Tiling>& tiling, const nn::Ctx& ctx);
// Pixels [B, 3, 1, H, W] in [-1, 1] → moments [B, 2 * C, 1, h, w]: mean, then log variance.
Tensor encode_image(const VaeEncoder& encoder, const VaeConfig& config, const Tensor& image,
                    const std::optional<Tiling>& tiling, const nn::Ctx& ctx);

}  // namespace lockstep::models
