#include "pipeline/image_stage.h"

#include <cmath>

#include "backend/map_floats.h"
#include "base/interrupt.h"
#include "ops/elementwise.h"
#include "pipeline/latents.h"

namespace lockstep {
namespace {

// mean + exp(0.5 * logvar) * noise, every product and sum rounded to the dtype.
Tensor drawn(const Tensor& mean, const Tensor& logvar, const Tensor& noise) {
  const DType dtype = mean.dtype();
  Tensor out = Tensor::empty(dtype, mean.shape());
  map_floats(
      out,
      [dtype](int64_t, float m, float v, float n) {
        const float half = rounded_to(dtype, 0.5f * std::clamp(v, -30.0f, 20.0f));
        return m + rounded_to(dtype, rounded_to(dtype, std::exp(half)) * n);
      },
      mean, logvar, noise);
  return out;
}

}  // namespace

ImageStage::ImageStage(const Stages& stages)
    : stages_(stages), config_(stages.model().vae_config()), encoder_(stages.vae_encoder()) {}

Tensor ImageStage::moments(const Tensor& pixels) const {
  check_interrupt("edit");
  const nn::Execution stage = stages_.execution();
  return models::encode_image(*encoder_, config_,
                              ops::cast(stages_.backend(), stages_.backend().upload(pixels), stages_.dtype()),
                              stages_.settings().tiling, nn::Ctx(stage, "vae"));
}

Tensor ImageStage::mean(const Tensor& pixels) const {
  const Tensor both = moments(pixels);
  const Tensor z = ops::contiguous(
      stages_.backend(), ops::cast(stages_.backend(), both.slice(1, 0, config_.latent_channels), stages_.dtype()));
  return normalize_latents(stages_.backend(), z, config_, LatentScale::kDivide);
}

Tensor ImageStage::sample(const Tensor& pixels, TorchGenerator& generator) const {
  const Tensor both = ops::cast(stages_.backend(), moments(pixels), stages_.dtype());
  const int64_t c = config_.latent_channels;
  const Tensor mean = both.slice(1, 0, c), logvar = both.slice(1, c, 2 * c);
  const Tensor noise = torch_randn(mean.shape(), stages_.dtype(), generator);
  return normalize_latents(stages_.backend(), stages_.backend().upload(drawn(mean.host(), logvar.host(), noise)),
                           config_, LatentScale::kMultiply);
}

}  // namespace lockstep
