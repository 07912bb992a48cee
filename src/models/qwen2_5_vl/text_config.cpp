#include "base/error.h"
#include "models/qwen2_5_vl/text_model.h"

namespace lockstep::models {

TextConfig read_text_config(const fs::path& path) {
  const ConfigReader root = read_config(path, "");
  const std::string type = root.text_or("model_type", "qwen2_5_vl");
  if (type != "qwen2_5_vl") root.refuse("model_type", "qwen2_5_vl");
  const ConfigReader reader = root.has("text_config") ? root.section("text_config") : root;
  TextConfig config;
  config.layers = static_cast<int>(reader.integer("num_hidden_layers", 1, 1000));
  config.width = reader.integer("hidden_size", 2, 1 << 16);
  config.heads = reader.integer("num_attention_heads", 1, 1024);
  config.kv_heads = reader.integer("num_key_value_heads", 1, 1024);
  config.hidden = reader.integer("intermediate_size", 1, 1 << 20);
  config.vocabulary = reader.integer("vocab_size", 1, 1 << 24);
  config.eps = static_cast<float>(reader.number("rms_norm_eps"));
  if (config.width % config.heads != 0)
    reader.refuse("num_attention_heads", "a divisor of hidden_size " + std::to_string(config.width));
  if (config.heads % config.kv_heads != 0)
    reader.refuse("num_key_value_heads", "a divisor of num_attention_heads " + std::to_string(config.heads));
  config.head_width = config.width / config.heads;
  if (config.head_width % 2 != 0) reader.refuse("num_attention_heads", "an even head width");
  config.rope_theta = reader.has("rope_parameters") ? reader.section("rope_parameters").number("rope_theta")
                                                    : reader.number_or("rope_theta", 1e6);
  const char* rope = reader.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (reader.has(rope) && reader.section(rope).has("mrope_section"))
    config.mrope_section = reader.section(rope).integers("mrope_section");
  config.tied_head = root.boolean_or("tie_word_embeddings", false);
  if (reader.text_or("hidden_act", "silu") != "silu") reader.refuse("hidden_act", "silu");
  if (reader.boolean_or("use_sliding_window", false)) reader.refuse("use_sliding_window", "false");
  return config;
}

}  // namespace lockstep::models
