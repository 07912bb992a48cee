// vae/config.json of Qwen-Image.
#pragma once
#include <vector>

#include "models/config_reader.h"

namespace lockstep::models {

struct VaeConfig {
  int64_t base = 0, latent_channels = 0, image_channels = 3;
  int res_blocks = 0;
  std::vector<int64_t> multipliers;  // channels of level i are base * multipliers[i]
  std::vector<float> latents_mean, latents_std;

  int64_t level_channels(size_t level) const { return base * multipliers[level]; }
  int64_t scale() const { return int64_t{1} << (multipliers.size() - 1); }  // pixels per latent, 8
};

VaeConfig read_vae_config(const fs::path& path);

}  // namespace lockstep::models
