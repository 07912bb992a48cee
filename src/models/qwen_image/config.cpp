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
  // Variants of the family that this version does not compute: better refused by name than drawn wrong.
  for (const char* flag : {"guidance_embeds", "zero_cond_t", "use_additional_t_cond", "use_layer3d_rope"})
    if (reader.boolean_or(flag, false))
      fail(Code::kUnsupported, "config", reader.origin() + ": " + flag + " is not supported yet",
           {.expected = "false", .got = "true"});
  return config;
}

}  // namespace lockstep::models
