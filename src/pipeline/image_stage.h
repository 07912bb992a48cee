// The VAE encoder's stage: pictures become latents.
#pragma once
#include "pipeline/noise.h"
#include "pipeline/stages.h"

namespace lockstep {

class ImageStage {
 public:
  explicit ImageStage(const Stages& stages);

  // Pixels f32 [1, C, 1, H, W] → normalised latents [1, c, 1, h, w]: the posterior's mean, or a sample of it that takes
  // its numbers from the generator.
  Tensor mean(const Tensor& pixels) const;
  Tensor sample(const Tensor& pixels, TorchGenerator& generator) const;

 private:
  Tensor moments(const Tensor& pixels) const;  // [1, 2c, 1, h, w]

  const Stages& stages_;
  models::VaeConfig config_;
  std::shared_ptr<const models::VaeEncoder> encoder_;
};

}  // namespace lockstep
