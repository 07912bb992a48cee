// The vision part of text_encoder/config.json: the tower that turns pictures into rows of the language model.
#pragma once
#include <vector>

#include "models/config_reader.h"

namespace lockstep::models {

struct VisionConfig {
  int layers = 0;
  int64_t width = 0, heads = 0, hidden = 0, channels = 3, patch = 14, temporal_patch = 2, merge = 2, window = 112,
          output_width = 0;
  std::vector<int64_t> full_attention;  // blocks that see the whole picture; the others see their window
  double rope_theta = 1e4;
  int64_t image_token = 0;  // the id that stands for one merged patch

  int64_t head_width() const { return width / heads; }
  int64_t patch_values() const { return channels * temporal_patch * patch * patch; }
  int64_t merged_patches() const { return merge * merge; }
};

VisionConfig read_vision_config(const fs::path& path);  // the text encoder's config.json

}  // namespace lockstep::models
