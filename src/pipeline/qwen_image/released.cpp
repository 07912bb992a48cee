#include "pipeline/qwen_image/released.h"

namespace lockstep::released {

models::QwenImageConfig transformer() {
  return {.layers = 60,
          .heads = 24,
          .head_width = 128,
          .text_width = 3584,
          .in_channels = 64,
          .out_channels = 16,
          .patch = 2,
          .rope_axes = {16, 56, 56}};
}

models::TextConfig text_encoder() {
  return {.layers = 28,
          .width = 3584,
          .heads = 28,
          .kv_heads = 4,
          .hidden = 18944,
          .vocabulary = 152064,
          .head_width = 128,
          .eps = 1e-6f,
          .rope_theta = 1e6};
}

SchedulerConfig scheduler() {
  return {.base_shift = 0.5, .max_shift = 0.9, .base_tokens = 256, .max_tokens = 8192, .shift_terminal = 0.02};
}

models::VaeConfig vae() {
  return {.base = 96,
          .latent_channels = 16,
          .image_channels = 3,
          .res_blocks = 2,
          .multipliers = {1, 2, 4, 4},
          .latents_mean = {-0.7571f, -0.7089f, -0.9113f, 0.1075f, -0.1745f, 0.9653f, -0.1517f, 1.5508f, 0.4134f,
                           -0.0715f, 0.5517f, -0.3632f, -0.1922f, -0.9497f, 0.2503f, -0.2921f},
          .latents_std = {2.8184f, 1.4541f, 2.3275f, 2.6558f, 1.2196f, 1.7708f, 2.6052f, 2.0743f, 3.2687f, 2.1526f,
                          2.8652f, 1.5579f, 1.6382f, 1.1253f, 2.8251f, 1.9160f}};
}

}  // namespace lockstep::released
