#include <algorithm>

#include "models/qwen_vae/vae.h"
#include "tensor/convert.h"

namespace lockstep::models {

using nn::Ctx;

namespace {

// b's first `extent` rows (axis 1) or columns (axis 2) fade in over the end of a: linear, as the official code does it.
// f32 [B, H, W, C].
void blend(const Tensor& a, Tensor& b, int axis, int64_t extent) {
  extent = std::min({extent, a.dim(axis), b.dim(axis)});
  const int64_t across_axis = 3 - axis;
  const int64_t across = std::min(a.dim(static_cast<int>(across_axis)), b.dim(static_cast<int>(across_axis)));
  const float* from = a.data<float>();
  float* to = b.mutable_data<float>();
  const int64_t channels = b.dim(3);
  const auto offset = [channels](const Tensor& t, int64_t n, int64_t y, int64_t x) {
    return ((n * t.dim(1) + y) * t.dim(2) + x) * channels;
  };
  for (int64_t n = 0; n < b.dim(0); ++n)
    for (int64_t i = 0; i < extent; ++i) {
      const float share = static_cast<float>(i) / static_cast<float>(extent);
      for (int64_t j = 0; j < across; ++j) {
        const int64_t tail = a.dim(axis) - extent + i;
        const float* source = from + (axis == 1 ? offset(a, n, tail, j) : offset(a, n, j, tail));
        float* target = to + (axis == 1 ? offset(b, n, i, j) : offset(b, n, j, i));
        for (int64_t c = 0; c < channels; ++c) target[c] = source[c] * (1 - share) + target[c] * share;
      }
    }
}

}  // namespace

Tensor decode_latents(const VaeDecoder& decoder, const VaeConfig& config, const Tensor& latents,
                      const std::optional<Tiling>& tiling, const Ctx& ctx) {
  Backend& backend = ctx.backend();
  const Tensor z = latents.squeeze(2).permute({0, 2, 3, 1}).contiguous();  // [B, C, 1, h, w] → [B, h, w, C]
  const int64_t height = z.dim(1), width = z.dim(2), scale = config.scale();
  if (!tiling || (height <= tiling->tile / scale && width <= tiling->tile / scale))
    return ops::unary(backend, UnaryOp::kClampUnit, decoder.forward(z, ctx));
  const int64_t tile = tiling->tile / scale, stride = tiling->stride / scale, overlap = tiling->tile - tiling->stride;
  Tensor image = Tensor::empty(DType::kF32, {z.dim(0), height * scale, width * scale, config.image_channels});
  std::vector<Tensor> above,
      row;  // decoded tiles, blended in place: the next row and column fade over the blended ones
  for (int64_t y = 0; y < height; y += stride) {
    for (int64_t x = 0; x < width; x += stride) {
      const Tensor part = z.slice(1, y, std::min(y + tile, height)).slice(2, x, std::min(x + tile, width)).contiguous();
      Tensor pixels = decoder.forward(part, ctx).to(DType::kF32).clone();
      const size_t column = row.size();
      if (!above.empty()) blend(above[column], pixels, 1, overlap);
      if (!row.empty()) blend(row.back(), pixels, 2, overlap);
      const int64_t keep_h = std::min(tiling->stride, pixels.dim(1)), keep_w = std::min(tiling->stride, pixels.dim(2));
      const int64_t h = std::min(keep_h, image.dim(1) - y * scale), w = std::min(keep_w, image.dim(2) - x * scale);
      ops::copy_into(backend, pixels.slice(1, 0, h).slice(2, 0, w),
                     image.slice(1, y * scale, y * scale + h).slice(2, x * scale, x * scale + w));
      row.push_back(std::move(pixels));
    }
    above = std::move(row);
    row.clear();
  }
  return ops::unary(backend, UnaryOp::kClampUnit, image);
}

}  // namespace lockstep::models
