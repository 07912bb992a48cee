#include "pipeline/latents.h"

#include "backend/map_floats.h"
#include "base/error.h"
#include "ops/elementwise.h"

namespace lockstep {

Tensor pack_latents(Backend& backend, const Tensor& latents) {
  const int64_t b = latents.dim(0), c = latents.dim(1), h = latents.dim(2), w = latents.dim(3);
  if (h % 2 || w % 2)
    fail(Code::kBadInput, "pack", "latents of odd size",
         {.expected = "even height and width", .got = to_string(latents.shape())});
  // [B, C, y, dy, x, dx] → [B, y, x, C, dy, dx]
  const Tensor split = ops::contiguous(backend, latents).reshape({b, c, h / 2, 2, w / 2, 2});
  return ops::contiguous(backend, split.permute({0, 2, 4, 1, 3, 5})).reshape({b, (h / 2) * (w / 2), c * 4});
}

Tensor unpack_latents(Backend& backend, const Tensor& packed, int64_t height, int64_t width) {
  const int64_t b = packed.dim(0), c = packed.dim(2) / 4;
  // [B, y, x, C, dy, dx] → [B, C, y, dy, x, dx]
  const Tensor split = packed.reshape({b, height / 2, width / 2, c, 2, 2});
  return ops::contiguous(backend, split.permute({0, 3, 1, 4, 2, 5})).reshape({b, c, 1, height, width});
}

Tensor pack_frames(Backend& backend, const Tensor& latents) {
  const int64_t frames = latents.dim(1), c = latents.dim(2), h = latents.dim(3), w = latents.dim(4);
  const Tensor packed = pack_latents(backend, latents.reshape({frames, c, h, w}));  // [F, tokens, C * 4]
  return packed.reshape({1, frames * packed.dim(1), packed.dim(2)});
}

Tensor unpack_frames(Backend& backend, const Tensor& packed, int64_t frames, int64_t height, int64_t width) {
  return unpack_latents(backend, packed.reshape({frames, packed.dim(1) / frames, packed.dim(2)}), height, width);
}

Tensor denormalize_latents(Backend& backend, const Tensor& latents, const models::VaeConfig& config) {
  const DType dtype = latents.dtype();
  Tensor inverse_std = Tensor::empty(DType::kF32, {latents.dim(1)}), mean = inverse_std.clone();
  for (int64_t c = 0; c < latents.dim(1); ++c) {
    const auto at = static_cast<size_t>(c);
    inverse_std.mutable_data<float>()[c] = rounded_to(dtype, 1.0f / rounded_to(dtype, config.latents_std[at]));
    mean.mutable_data<float>()[c] = rounded_to(dtype, config.latents_mean[at]);
  }
  return ops::denormalize(backend, latents, backend.upload(inverse_std), backend.upload(mean));
}

Tensor normalize_latents(Backend& backend, const Tensor& latents, const models::VaeConfig& config, LatentScale scale) {
  const int64_t channels = latents.dim(1);
  Tensor mean = Tensor::empty(DType::kF32, {1, channels, 1, 1, 1}), std = Tensor::empty(DType::kF32, mean.shape());
  for (int64_t c = 0; c < channels; ++c) {
    const float deviation = rounded_to(latents.dtype(), config.latents_std[static_cast<size_t>(c)]);
    mean.mutable_data<float>()[c] = config.latents_mean[static_cast<size_t>(c)];
    std.mutable_data<float>()[c] = scale == LatentScale::kDivide ? deviation : 1.0f / deviation;
  }
  const DType dtype = latents.dtype();
  return ops::binary(backend, scale == LatentScale::kDivide ? BinaryOp::kDivide : BinaryOp::kMultiply,
                     ops::binary(backend, BinaryOp::kSubtract, latents, backend.upload(mean.to(dtype))),
                     backend.upload(std.to(dtype)));
}

}  // namespace lockstep
