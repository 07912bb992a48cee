// What a picture will look like, from latents that are not done: a linear map of each latent to a colour (16 factors a
// channel, fitted by tools/fit_preview_factors.py to the embedded VAE), or the VAE itself at a small size. Neither
// touches the latents that go on.
#pragma once
#include <string>

#include "pipeline/model_folder.h"
#include "pipeline/watch.h"

namespace lockstep {

inline constexpr size_t kMostPreviewBytes = 30000;

// Colours u8 [h, w, 3] of a step's predicted clean picture, a pixel a latent, at most 256 a side.
Tensor preview_pixels(const WatchedStep& step, const PreviewMap& map);
// The same through the VAE decoder, from at most 16 x 16 latents.
Tensor preview_by_vae(const WatchedStep& step, const models::VaeConfig& config, const models::VaeDecoder& decoder,
                      Backend& backend, DType dtype);
// In the format asked for, within kMostPreviewBytes.
std::string encode_preview(Tensor pixels, const std::string& format);

}  // namespace lockstep
