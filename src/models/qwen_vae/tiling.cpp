#include <algorithm>
#include <functional>

#include "base/error.h"
#include "models/qwen_vae/vae.h"

namespace lockstep::models {

using nn::Ctx;

namespace {

struct Size {
  int64_t height, width;
};

// b's first `extent` rows (axis 1) or columns (axis 2) fade in over the end of a: linear, as the official code does it.
// f32 [B, H, W, C].
void blend(Backend& backend, const Tensor& a, Tensor& b, int axis, int64_t extent) {
  extent = std::min({extent, a.dim(axis), b.dim(axis)});
  const int other = 3 - axis;
  const int64_t across = std::min(a.dim(other), b.dim(other));
  Shape shape{1, 1, 1, 1};
  shape[static_cast<size_t>(axis)] = extent;
  Tensor share = Tensor::empty(DType::kF32, shape), rest = Tensor::empty(DType::kF32, shape);
  for (int64_t i = 0; i < extent; ++i) {
    share.mutable_data<float>()[i] = static_cast<float>(i) / static_cast<float>(extent);
    rest.mutable_data<float>()[i] = 1 - share.data<float>()[i];
  }
  const Tensor tail = a.slice(axis, a.dim(axis) - extent, a.dim(axis)).slice(other, 0, across);
  const Tensor head = b.slice(axis, 0, extent).slice(other, 0, across);  // [B, extent, across, C] or its like
  const Tensor faded = ops::binary(backend, BinaryOp::kMultiply, tail, backend.upload(rest));
  const Tensor rising = ops::binary(backend, BinaryOp::kMultiply, head, backend.upload(share));
  ops::copy_into(backend, ops::binary(backend, BinaryOp::kAdd, faded, rising), head);
}

struct TilePlan {
  Size tile, stride;                // of the input
  Size out_stride, out_blend, out;  // of the output
};

// Rows top down, columns left to right. A tile fades over the blended tile above it, then over the one on its left.
Tensor run_tiled(const Tensor& x, const TilePlan& plan, int64_t channels, Backend& backend,
                 const std::function<Tensor(const Tensor&)>& network) {
  Tensor result = backend.allocate(DType::kF32, {x.dim(0), plan.out.height, plan.out.width, channels});
  std::vector<Tensor> above, row;
  for (int64_t y = 0, out_y = 0; y < x.dim(1); y += plan.stride.height, out_y += plan.out_stride.height) {
    for (int64_t left = 0, out_x = 0; left < x.dim(2); left += plan.stride.width, out_x += plan.out_stride.width) {
      const Tensor part = ops::contiguous(backend, x.slice(1, y, std::min(y + plan.tile.height, x.dim(1)))
                                                       .slice(2, left, std::min(left + plan.tile.width, x.dim(2))));
      const Tensor made = network(part);
      Tensor tile = backend.allocate(DType::kF32, made.shape());  // a copy: who listens may keep what it was offered
      ops::copy_into(backend, made, tile);
      if (!above.empty()) blend(backend, above[row.size()], tile, 1, plan.out_blend.height);
      if (!row.empty()) blend(backend, row.back(), tile, 2, plan.out_blend.width);
      const int64_t h = std::min({plan.out_stride.height, tile.dim(1), plan.out.height - out_y}),
                    w = std::min({plan.out_stride.width, tile.dim(2), plan.out.width - out_x});
      if (h > 0 && w > 0)
        ops::copy_into(backend, tile.slice(1, 0, h).slice(2, 0, w),
                       result.slice(1, out_y, out_y + h).slice(2, out_x, out_x + w));
      row.push_back(std::move(tile));
    }
    above = std::exchange(row, {});
  }
  return result;
}

void check(const Tiling& t, int64_t scale) {
  const bool whole = t.tile_height % scale == 0 && t.tile_width % scale == 0 && t.stride_height % scale == 0 &&
                     t.stride_width % scale == 0;
  if (!whole || t.stride_height < scale || t.stride_width < scale || t.tile_height < t.stride_height ||
      t.tile_width < t.stride_width)
    fail(Code::kBadInput, "vae", "tiles do not fit the latents",
         {.expected = "multiples of " + std::to_string(scale) + " pixels and strides no longer than tiles"});
}

}  // namespace

Tensor decode_latents(const VaeDecoder& decoder, const VaeConfig& config, const Tensor& latents,
                      const std::optional<Tiling>& tiling, const Ctx& ctx) {
  Backend& backend = ctx.backend();
  const Tensor z =
      ops::contiguous(backend, latents.squeeze(2).permute({0, 2, 3, 1}));  // [B, C, 1, h, w] → [B, h, w, C]
  const int64_t scale = config.scale();
  const auto network = [&](const Tensor& part) { return decoder.forward(part, ctx); };
  if (tiling) check(*tiling, scale);
  if (!tiling || (z.dim(1) <= tiling->tile_height / scale && z.dim(2) <= tiling->tile_width / scale))
    return ops::unary(backend, UnaryOp::kClampUnit, network(z));
  const TilePlan plan{
      .tile = {tiling->tile_height / scale, tiling->tile_width / scale},
      .stride = {tiling->stride_height / scale, tiling->stride_width / scale},
      .out_stride = {tiling->stride_height, tiling->stride_width},
      .out_blend = {tiling->tile_height - tiling->stride_height, tiling->tile_width - tiling->stride_width},
      .out = {z.dim(1) * scale, z.dim(2) * scale}};
  return run_tiled(z, plan, config.image_channels, backend,
                   network);  // the official tiled decode does not clamp; turning it into pixels does
}

Tensor encode_image(const VaeEncoder& encoder, const VaeConfig& config, const Tensor& image,
                    const std::optional<Tiling>& tiling, const Ctx& ctx) {
  const Tensor x = ops::contiguous(ctx.backend(), image.squeeze(2).permute({0, 2, 3, 1}));  // → [B, H, W, 3]
  const int64_t scale = config.scale();
  const auto network = [&](const Tensor& part) { return encoder.forward(part, ctx); };
  if (x.dim(1) % scale || x.dim(2) % scale)
    fail(Code::kBadInput, "vae", "the image does not divide into latents",
         {.expected = "multiples of " + std::to_string(scale) + " pixels", .got = to_string(image.shape())});
  if (tiling) check(*tiling, scale);
  Tensor moments;
  if (!tiling || (x.dim(1) <= tiling->tile_height && x.dim(2) <= tiling->tile_width)) {
    moments = network(x);
  } else {
    const TilePlan plan{.tile = {tiling->tile_height, tiling->tile_width},
                        .stride = {tiling->stride_height, tiling->stride_width},
                        .out_stride = {tiling->stride_height / scale, tiling->stride_width / scale},
                        .out_blend = {(tiling->tile_height - tiling->stride_height) / scale,
                                      (tiling->tile_width - tiling->stride_width) / scale},
                        .out = {x.dim(1) / scale, x.dim(2) / scale}};
    moments = run_tiled(x, plan, 2 * config.latent_channels, ctx.backend(), network);
  }
  return moments.permute({0, 3, 1, 2}).unsqueeze(2);  // [B, 2C, 1, h, w]
}

}  // namespace lockstep::models
