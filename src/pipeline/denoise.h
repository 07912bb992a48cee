// The transformer's stage: noise becomes latents, step by step.
#pragma once
#include "models/qwen_image/transformer.h"
#include "pipeline/noise.h"
#include "pipeline/scheduler.h"
#include "pipeline/text_stage.h"

namespace lockstep {

// Outside the mask a picture is kept: after each step those latents are the picture's own, with the noise of that time.
struct KeptPicture {
  Tensor noise, image, mask;  // packed [1, N, C]; the mask is 1 where new latents stay
};

inline constexpr int kStepsAhead = 8;  // whose modulations are made at a time: 5 MB each in the released model's bf16

// One picture's way through the transformer; or that of several of one shape, a row each.
struct Denoising {
  Embeddings text = {};
  Tensor latents = {};              // packed [1, N, C]
  Tensor condition = {};            // packed latents of condition pictures [1, M, C], or undefined
  std::vector<models::Grid> grids;  // of the latents, then of the condition pictures
  Schedule schedule = {};
  int first_step = 0;
  float guidance = 1;  // 1: none
  bool rescale = true;
  std::optional<KeptPicture> kept = {};
};

// Packed latents, one of each work; undefined where it was dropped. What has one shape, schedule and guidance goes
// through together, as far as the settings allow.
std::vector<Tensor> denoise(const Stages& stages, std::vector<Denoising> work);

// Noise for a picture, drawn as the official pipelines draw it: [1, frames, C, height, width] in latents.
Tensor draw_noise(const Stages& stages, int64_t frames, int64_t channels, int64_t height, int64_t width,
                  TorchGenerator& generator);
// The request's own noise, or drawn; packed, offered as "initial_latents_packed".
Tensor initial_latents(const Stages& stages, const GenerateRequest& request, int64_t frames, int64_t channels,
                       int64_t height, int64_t width, TorchGenerator& generator);

}  // namespace lockstep
