// A picture from a file, whatever its mode, as one of the three that pipelines take.
#pragma once
#include "tensor/tensor.h"

namespace lockstep {

// All take [H, W, 1, 3 or 4] of u8 or u16 and give u8; 16-bit values keep their high byte, as Pillow reads them.
Tensor rgb_over_white(const Tensor& pixels);  // [H, W, 3]; alpha is composited over white as Pillow does it
Tensor rgba_picture(const Tensor& pixels);    // [H, W, 4]; opaque where there was no alpha
// [H, W, 1]: 255 where a mask asks for new pixels. White, or, in a picture that is transparent anywhere, transparent.
Tensor mask_picture(const Tensor& pixels);

}  // namespace lockstep
