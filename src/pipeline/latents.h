// The way between the VAE's latents and the transformer's tokens.
#pragma once
#include "models/qwen_vae/config.h"
#include "tensor/tensor.h"

namespace lockstep {

Tensor pack_latents(const Tensor& latents);  // [B, C, h, w] → [B, h/2 * w/2, C * 4]: token (y, x) holds c, dy, dx
Tensor unpack_latents(const Tensor& packed, int64_t height,
                      int64_t width);  // tokens → [B, C, 1, height, width] in latent pixels
Tensor denormalize_latents(
    const Tensor& latents,
    const models::VaeConfig& config);               // z / (1 / std) + mean, rounded as the official pipeline rounds
Tensor pixels_from_decoded(const Tensor& decoded);  // [B, H, W, 3] in [-1, 1] → u8 [B, H, W, 3]

}  // namespace lockstep
