#include "io/picture_modes.h"

#include "base/error.h"

namespace lockstep {
namespace {

// u8, contiguous.
Tensor eight_bits(const Tensor& pixels) {
  const bool wide = pixels.dtype() == DType::kU16;
  if (pixels.rank() != 3 || (!wide && pixels.dtype() != DType::kU8) ||
      (pixels.dim(2) != 1 && pixels.dim(2) != 3 && pixels.dim(2) != 4))
    fail(Code::kBadInput, "image", "not a picture",
         {.expected = "u8 or u16 [height, width, 1, 3 or 4]", .got = to_string(pixels.shape())});
  const Tensor packed = pixels.contiguous();
  if (!wide) return packed;
  Tensor out = Tensor::empty(DType::kU8, pixels.shape());
  const uint16_t* from = packed.data<uint16_t>();
  uint8_t* to = out.mutable_data<uint8_t>();
  for (int64_t i = 0; i < packed.numel(); ++i) to[i] = static_cast<uint8_t>(from[i] >> 8);
  return out;
}

// Pillow's alpha_composite of one value over white, in its 14-bit fixed point.
uint8_t over_white(uint32_t value, uint32_t alpha) {
  if (alpha == 0) return 255;
  constexpr uint32_t kBits = 7;
  const uint32_t blend = 255 * (255 - alpha), out_alpha = alpha * 255 + blend;
  const uint32_t share = (alpha * 255 * 255 * (1 << kBits)) / out_alpha, rest = 255 * (1 << kBits) - share;
  const uint32_t sum = value * share + 255 * rest + (0x80 << kBits);
  return static_cast<uint8_t>(((sum >> 8) + sum) >> 8 >> kBits);
}

}  // namespace

Tensor rgb_over_white(const Tensor& pixels) {
  const Tensor picture = eight_bits(pixels);
  const int64_t channels = picture.dim(2);
  if (channels == 3) return picture;
  Tensor out = Tensor::empty(DType::kU8, {picture.dim(0), picture.dim(1), 3});
  const uint8_t* from = picture.data<uint8_t>();
  uint8_t* to = out.mutable_data<uint8_t>();
  for (int64_t i = 0; i < picture.dim(0) * picture.dim(1); ++i, from += channels)
    for (int c = 0; c < 3; ++c) *to++ = channels == 1 ? from[0] : over_white(from[c], from[3]);
  return out;
}

Tensor rgba_picture(const Tensor& pixels) {
  const Tensor picture = eight_bits(pixels);
  const int64_t channels = picture.dim(2);
  if (channels == 4) return picture;
  Tensor out = Tensor::empty(DType::kU8, {picture.dim(0), picture.dim(1), 4});
  const uint8_t* from = picture.data<uint8_t>();
  uint8_t* to = out.mutable_data<uint8_t>();
  for (int64_t i = 0; i < picture.dim(0) * picture.dim(1); ++i, from += channels) {
    for (int c = 0; c < 3; ++c) *to++ = from[channels == 1 ? 0 : c];
    *to++ = 255;
  }
  return out;
}

Tensor mask_picture(const Tensor& pixels) {
  const Tensor picture = eight_bits(pixels);
  const int64_t channels = picture.dim(2), count = picture.dim(0) * picture.dim(1);
  const uint8_t* from = picture.data<uint8_t>();
  bool transparent = false;
  for (int64_t i = 0; channels == 4 && i < count; ++i) transparent = transparent || from[i * 4 + 3] < 255;
  Tensor out = Tensor::empty(DType::kU8, {picture.dim(0), picture.dim(1), 1});
  uint8_t* to = out.mutable_data<uint8_t>();
  for (int64_t i = 0; i < count; ++i, from += channels) {
    if (transparent)
      to[i] = static_cast<uint8_t>(255 - from[3]);
    else if (channels == 1)
      to[i] = from[0];
    else  // ITU-R 601, as Pillow's convert("L")
      to[i] = static_cast<uint8_t>((from[0] * 19595u + from[1] * 38470u + from[2] * 7471u + 0x8000u) >> 16);
  }
  return out;
}

}  // namespace lockstep
