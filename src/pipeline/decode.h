// The VAE decoder's stage: latents become pixels.
#pragma once
#include "pipeline/pictures.h"
#include "pipeline/stages.h"

namespace lockstep {

// Packed latents of one picture: of one frame, or of several whose first is left out (layers).
struct Decoding {
  Tensor latents;    // [1, frames * N, C]
  PictureSize size;  // in pixels, multiples of 16
  int64_t frames = 1;
};

// One picture for each of `work` that was not dropped, or one for each frame but the first.
std::vector<GeneratedImage> decode(const Stages& stages, std::vector<Decoding> work);

}  // namespace lockstep
