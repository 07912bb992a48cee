// Rotary positions of the DiT: three axes (frame, height, width), image grids centred on zero, text behind the largest
// of them.
#pragma once
#include <vector>

#include "backend/backend.h"
#include "models/qwen_image/config.h"

namespace lockstep::models {

struct Grid {  // in tokens
  int64_t frames = 1, height = 0, width = 0;
  int64_t tokens() const { return frames * height * width; }
};

struct RopeTable {
  Tensor cos, sin;  // f32 [tokens, head_width / 2]
};

struct Rope {
  RopeTable img, txt;
};

Rope make_rope(const QwenImageConfig& config, const std::vector<Grid>& grids, int64_t text_tokens);  // host tensors
Rope uploaded(Backend& backend, const Rope& rope);

}  // namespace lockstep::models
