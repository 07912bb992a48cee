// Pictures on their way in: the sizes the official pipelines choose, and pixels as the two encoders take them.
#pragma once
#include "io/resize.h"
#include "models/qwen2_5_vl/vision_tower.h"
#include "pipeline/text_stage.h"

namespace lockstep {

struct PictureSize {
  int64_t width = 0, height = 0;
};

// Width and height of about side * side pixels with the ratio of the picture, in multiples of 32.
PictureSize size_for_area(int64_t side, const Tensor& picture);
// Rounded down to multiples of 16, as latents need it.
PictureSize floored(PictureSize size);

Tensor resized(const Tensor& picture, PictureSize size);  // as Pillow's Lanczos
Tensor vae_pixels(const Tensor& picture);                 // u8 [H, W, C] → f32 [1, C, 1, H, W] in [-1, 1]

// The settings of Qwen2VLImageProcessor.
struct ImageProcessor {
  int64_t patch = 14, temporal_patch = 2, merge = 2, min_pixels = 56 * 56, max_pixels = 28 * 28 * 1280;
  std::vector<double> mean, std;
  double rescale = 1.0 / 255;
  Resampling resampling = Resampling::kTorchvisionBicubic;

  // The size the vision tower sees, in multiples of patch * merge.
  PictureSize smart_resize(int64_t height, int64_t width) const;
  VisionInput patches(const std::vector<Tensor>& pictures) const;  // of u8 [H, W, 3]
};
// From preprocessor_config.json, or from processor_config.json as newer transformers write it.
ImageProcessor read_image_processor(const fs::path& folder);

}  // namespace lockstep
