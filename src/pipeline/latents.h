// The way between the VAE's latents and the transformer's tokens.
#pragma once
#include "backend/backend.h"
#include "models/qwen_vae/config.h"

namespace lockstep {

Tensor pack_latents(Backend& backend,
                    const Tensor& latents);  // [B, C, h, w] → [B, h/2 * w/2, C * 4]: token (y, x) holds c, dy, dx
Tensor unpack_latents(Backend& backend, const Tensor& packed, int64_t height,
                      int64_t width);  // tokens → [B, C, 1, height, width] in latent pixels
// Several frames one behind the other: [1, F, C, h, w] → [1, F * tokens, C * 4], and back as [F, C, 1, h, w].
Tensor pack_frames(Backend& backend, const Tensor& latents);
Tensor unpack_frames(Backend& backend, const Tensor& packed, int64_t frames, int64_t height, int64_t width);
Tensor denormalize_latents(
    Backend& backend, const Tensor& latents,
    const models::VaeConfig& config);  // z / (1 / std) + mean, rounded as the official pipeline rounds

// (z - mean) / std, or times 1 / std: the official pipelines do one or the other, and in bf16 the difference shows.
enum class LatentScale { kDivide, kMultiply };
Tensor normalize_latents(Backend& backend, const Tensor& latents, const models::VaeConfig& config,
                         LatentScale scale);  // [B, C, 1, h, w]

}  // namespace lockstep
