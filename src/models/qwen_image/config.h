// transformer/config.json of Qwen-Image.
#pragma once
#include <array>

#include "models/config_reader.h"

namespace lockstep::models {

struct QwenImageConfig {
  int layers = 0;
  int64_t heads = 0, head_width = 0, text_width = 0, in_channels = 0, out_channels = 0, patch = 0;
  std::array<int64_t, 3> rope_axes{};  // frame, height, width: shares of the head width

  bool zero_cond_t = false;        // condition pictures are modulated as at time 0
  bool additional_t_cond = false;  // a learnt vector is added to the time embedding
  bool layer3d_rope = false;       // the last grid is the condition and stands at frame -1

  int64_t width() const { return heads * head_width; }
  int64_t output_width() const { return patch * patch * out_channels; }
};

QwenImageConfig read_qwen_image_config(const fs::path& path);

}  // namespace lockstep::models
