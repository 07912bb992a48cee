// The diffusion transformer of Qwen-Image: packed latents, text embeddings and a timestep in, velocity out.
#pragma once
#include <vector>

#include "models/qwen_image/block.h"

namespace lockstep::models {

class QwenImageTransformer {
 public:
  QwenImageTransformer(const nn::Weights& weights, const QwenImageConfig& config);

  struct Input {
    Tensor latents;                     // [B, N, in_channels]
    Tensor text;                        // [B, T, text_width]
    std::vector<float> timesteps;       // one a row: sigma in [0, 1], already rounded as the latents' dtype rounds it
    const Tensor* text_mask = nullptr;  // bool [B, T]
    const Rope* rope = nullptr;
  };
  Tensor forward(const Input& input, const nn::Ctx& ctx) const;  // [B, N, output_width]

  const QwenImageConfig& config() const { return config_; }

 private:
  Tensor time_embedding(const std::vector<float>& timesteps, const nn::Ctx& ctx) const;

  QwenImageConfig config_;
  nn::Linear img_in_, txt_in_, time_1_, time_2_, norm_out_, proj_out_;
  nn::RmsNorm txt_norm_;
  std::vector<TransformerBlock> blocks_;
};

}  // namespace lockstep::models
