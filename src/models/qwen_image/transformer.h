// The diffusion transformer of Qwen-Image: packed latents, text embeddings and a timestep in, velocity out.
#pragma once
#include <vector>

#include "models/qwen_image/block.h"

namespace lockstep::models {

// Host tensors.
Tensor time_features(const std::vector<float>& timesteps);         // f32 [B, 256]
Tensor joint_mask(const Tensor& text_mask, int64_t image_tokens);  // bool [B, T] → [B, T + N]

class QwenImageTransformer {
 public:
  QwenImageTransformer(const nn::Weights& weights, const QwenImageConfig& config);

  struct Input {
    Tensor latents;                     // [B, N, in_channels]
    Tensor text;                        // [B, T, text_width]
    std::vector<float> timesteps = {};  // one a row: sigma in [0, 1], already rounded as the latents' dtype rounds it
    const Tensor* text_mask = nullptr;  // bool [B, T], a host tensor
    const Rope* rope = nullptr;         // where the backend reads it
    // What forward() makes of timesteps and text_mask when these are not given, where the backend reads it.
    const Tensor* features = nullptr;     // features_of(timesteps)
    const Tensor* modulations = nullptr;  // instead of features: their rows of modulations(), for nobody to listen to
    const Tensor* key_mask = nullptr;     // joint_mask(text_mask, N)
    int64_t target_tokens = 0;            // rows of `latents` that are drawn; the rest are condition pictures. 0: all
  };
  // What the model is told of the timesteps, one a row of latents: a host tensor, f32 [B, 256] or, with rows of time 0
  // behind them, [2B, 256].
  Tensor features_of(std::vector<float> timesteps) const;
  // All that the timesteps alone decide, a row each: [R, modulation_width()]. Made for several steps at a time, since
  // it reads as many weights for one row as for many: a third of them all.
  Tensor modulations(const Tensor& features, const nn::Ctx& ctx) const;
  int64_t modulation_width() const { return (12 * config_.layers + 2) * config_.width(); }
  Tensor forward(const Input& input, const nn::Ctx& ctx) const;  // [B, N, output_width]

  const QwenImageConfig& config() const { return config_; }

 private:
  std::vector<float> all_times(std::vector<float> timesteps) const;
  Tensor time_embedding(const Tensor& features, const nn::Ctx& ctx) const;  // activated: [R, D]

  QwenImageConfig config_;
  nn::Linear img_in_, txt_in_, time_1_, time_2_, norm_out_, proj_out_;
  nn::RmsNorm txt_norm_;
  Tensor additional_;  // [2, D]: what the kind of picture adds to the time embedding; undefined in most models
  std::vector<TransformerBlock> blocks_;
};

}  // namespace lockstep::models
