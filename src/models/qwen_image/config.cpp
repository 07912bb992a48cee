#include "models/qwen_image/config.h"

#include "base/error.h"

namespace lockstep::models {

QwenImageConfig read_qwen_image_config(const fs::path& path) {
  const ConfigReader reader = read_config(path, "QwenImageTransformer2DModel");
  QwenImageConfig config;
  config.layers = static_cast<int>(reader.integer("num_layers", 1, 1000));
  config.heads = reader.integer("num_attention_heads", 1, 1024);
  config.head_width = reader.integer("attention_head_dim", 2, 1024);
  config.text_width = reader.integer("joint_attention_dim", 1, 1 << 16);
  config.patch = reader.integer("patch_size", 1, 16);
  config.in_channels = reader.integer("in_channels", 1, 1 << 16);
  config.out_channels = reader.integer_or("out_channels", config.in_channels, 1, 1 << 16);
  const std::vector<int64_t> axes = reader.integers("axes_dims_rope");
  if (axes.size() != 3) reader.refuse("axes_dims_rope", "three axes");
  for (size_t i = 0; i < 3; ++i) {
    if (axes[i] % 2 != 0) reader.refuse("axes_dims_rope", "even sizes");
    config.rope_axes[i] = axes[i];
  }
  if (axes[0] + axes[1] + axes[2] != config.head_width)
    reader.refuse("axes_dims_rope", "sizes that add up to attention_head_dim " + std::to_string(config.head_width));
  config.zero_cond_t = reader.boolean_or("zero_cond_t", false);
  config.additional_t_cond = reader.boolean_or("use_additional_t_cond", false);
  config.layer3d_rope = reader.boolean_or("use_layer3d_rope", false);
  // No released model has it: better refused by name than drawn wrong.
  if (reader.boolean_or("guidance_embeds", false))
    fail(Code::kUnsupported, "config", reader.origin() + ": guidance_embeds is not supported",
         {.expected = "false", .got = "true"});
  return config;
}

}  // namespace lockstep::models
