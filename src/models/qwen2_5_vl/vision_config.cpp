#include "models/qwen2_5_vl/vision_config.h"

namespace lockstep::models {

VisionConfig read_vision_config(const fs::path& path) {
  const ConfigReader root = read_config(path, "");
  const ConfigReader reader = root.section("vision_config");
  VisionConfig config;
  config.layers = static_cast<int>(reader.integer("depth", 1, 1000));
  config.width = reader.integer("hidden_size", 4, 1 << 16);
  config.heads = reader.integer("num_heads", 1, 1024);
  config.hidden = reader.integer("intermediate_size", 1, 1 << 20);
  config.channels =
      reader.has("in_chans") ? reader.integer("in_chans", 1, 16) : reader.integer_or("in_channels", 3, 1, 16);
  config.patch = reader.integer_or("patch_size", 14, 1, 1024);
  config.temporal_patch = reader.integer_or("temporal_patch_size", 2, 1, 16);
  config.merge = reader.integer_or("spatial_merge_size", 2, 1, 16);
  config.window = reader.integer_or("window_size", 112, 1, 1 << 16);
  config.output_width = reader.integer("out_hidden_size", 1, 1 << 16);
  config.full_attention = reader.integers("fullatt_block_indexes");
  if (reader.has("rope_parameters")) config.rope_theta = reader.section("rope_parameters").number_or("rope_theta", 1e4);
  if (config.channels != 3) reader.refuse("in_channels", "3");
  if (config.width % config.heads != 0 || config.head_width() % 4 != 0)
    reader.refuse("num_heads", "a divisor of hidden_size that leaves a multiple of 4");
  if (config.window / config.patch / config.merge < 1)
    reader.refuse("window_size", "at least patch_size * spatial_merge_size");
  if (reader.text_or("hidden_act", "silu") != "silu") reader.refuse("hidden_act", "silu");
  config.image_token = root.integer_or("image_token_id", 151655, 0, 1 << 24);
  return config;
}

}  // namespace lockstep::models
