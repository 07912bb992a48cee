// The vision tower of Qwen2.5-VL: patches of pictures in, rows for the language model out. Most blocks attend inside
// windows, a few over the whole picture; pictures never see each other.
#pragma once
#include <span>
#include <vector>

#include "models/qwen2_5_vl/text_model.h"
#include "models/qwen2_5_vl/vision_config.h"

namespace lockstep::models {

struct PatchGrid {  // of one picture, in patches; both are multiples of the merge size
  int64_t height = 0, width = 0;
  int64_t patches() const { return height * width; }
  int64_t rows(const VisionConfig& config) const { return patches() / config.merged_patches(); }
};

// Patches are processed window by window. `order` holds, for each group of merged patches in that order, its place in
// the picture's own order (rows of merge blocks); segments are counted in patches.
struct WindowPlan {
  std::vector<int64_t> order, restored;            // [n / merge^2]
  std::vector<int64_t> window_ends, picture_ends;  // patches
  RotaryTable rope;                                // [n, head_width / 2], in window order
};
WindowPlan plan_windows(const VisionConfig& config, std::span<const PatchGrid> grids);

class VisionBlock {
 public:
  VisionBlock(const nn::Weights& weights, const VisionConfig& config);
  Tensor forward(const Tensor& x, const RotaryTable& rope, std::span<const int64_t> segment_ends,
                 const nn::Ctx& ctx) const;  // [n, D]

 private:
  Tensor attention(const Tensor& x, const RotaryTable& rope, std::span<const int64_t> segment_ends,
                   const nn::Ctx& ctx) const;
  Tensor mlp(const Tensor& x, const nn::Ctx& ctx) const;

  int64_t heads_, head_width_;
  nn::RmsNorm norm1_, norm2_;
  nn::Linear qkv_, proj_, gate_, up_, down_;
};

class VisionTower {
 public:
  VisionTower(const nn::Weights& weights, const VisionConfig& config);
  // Patches [n, channels * temporal * patch * patch] of all pictures, each in blocks of merge x merge → [n / merge^2,
  // output_width]. ctx is the component: names start with "visual".
  Tensor forward(const Tensor& patches, std::span<const PatchGrid> grids, const nn::Ctx& ctx) const;
  const VisionConfig& config() const { return config_; }

 private:
  VisionConfig config_;
  nn::Linear patch_embed_, merger_in_, merger_out_;
  nn::RmsNorm merger_norm_;
  std::vector<VisionBlock> blocks_;
};

// Positions of a prompt with pictures as the model was trained: a picture's tokens share one time and have rows and
// columns; text goes on behind the larger of its sides.
std::vector<TextPosition> image_positions(std::span<const int64_t> ids, std::span<const PatchGrid> grids,
                                          const VisionConfig& config);

}  // namespace lockstep::models
