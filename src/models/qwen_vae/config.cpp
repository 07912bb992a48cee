#include "models/qwen_vae/config.h"

namespace lockstep::models {

VaeConfig read_vae_config(const fs::path& path) {
  const ConfigReader reader = read_config(path, "AutoencoderKLQwenImage");
  VaeConfig config;
  config.base = reader.integer("base_dim", 1, 1 << 14);
  config.latent_channels = reader.integer("z_dim", 1, 1 << 12);
  config.image_channels = reader.integer_or("input_channels", 3, 1, 16);
  config.res_blocks = static_cast<int>(reader.integer("num_res_blocks", 1, 100));
  config.multipliers = reader.integers("dim_mult");
  if (config.multipliers.empty() || config.multipliers.size() > 8) reader.refuse("dim_mult", "one to eight levels");
  for (const int64_t m : config.multipliers)
    if (m < 1 || m > 64) reader.refuse("dim_mult", "factors from 1 to 64");
  if (reader.has("attn_scales") && !reader.numbers("attn_scales").empty())
    reader.refuse("attn_scales", "an empty list");
  for (const double v : reader.numbers("latents_mean")) config.latents_mean.push_back(static_cast<float>(v));
  for (const double v : reader.numbers("latents_std")) config.latents_std.push_back(static_cast<float>(v));
  if (static_cast<int64_t>(config.latents_mean.size()) != config.latent_channels)
    reader.refuse("latents_mean", std::to_string(config.latent_channels) + " values");
  if (static_cast<int64_t>(config.latents_std.size()) != config.latent_channels)
    reader.refuse("latents_std", std::to_string(config.latent_channels) + " values");
  return config;
}

}  // namespace lockstep::models
