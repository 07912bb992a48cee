// Resizing of 8-bit pictures, bit for bit as the two libraries do it whose results models were trained on.
#pragma once
#include "tensor/tensor.h"

namespace lockstep {

enum class Resampling {
  kPillowLanczos,      // Image.resize(size, LANCZOS): VAE and mask inputs
  kPillowBicubic,      // Image.resize(size, BICUBIC): vision inputs of Qwen2VLImageProcessorPil
  kTorchvisionBicubic  // resize(..., BICUBIC, antialias=True) of a uint8 tensor: vision inputs of Qwen2VLImageProcessor
};

// u8 [H, W, C] → u8 [height, width, C], C 1 to 4. Four channels are red, green, blue and alpha, and Pillow weighs the
// colours with their alpha.
Tensor resize_picture(const Tensor& pixels, int64_t height, int64_t width, Resampling resampling);

}  // namespace lockstep
