#include "studio/preview.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "io/image.h"
#include "nn/ctx.h"
#include "ops/elementwise.h"
#include "pipeline/latents.h"

namespace lockstep {
namespace {

constexpr int64_t kMostPreviewSide = 256;
constexpr int64_t kMostVaeLatents = 16;

// Predicted clean latents, f32 [C, h, w] for h, w in latents: latents - sigma * velocity, unpacked.
struct CleanLatents {
  std::vector<float> values;
  int64_t channels = 0, height = 0, width = 0;
};

CleanLatents clean_latents(const WatchedStep& step) {
  const Tensor x = step.latents.host().contiguous().to(DType::kF32),
               v = step.velocity.host().contiguous().to(DType::kF32);
  const float* latent = x.data<float>();
  const float* velocity = v.data<float>();
  const int64_t packed = x.dim(2), rows = step.grid.height, columns = step.grid.width;
  CleanLatents clean;
  clean.channels = packed / 4;
  clean.height = 2 * rows;
  clean.width = 2 * columns;
  clean.values.resize(static_cast<size_t>(clean.channels * clean.height * clean.width));
  for (int64_t y = 0; y < rows; ++y)  // a token holds channel, dy, dx
    for (int64_t tx = 0; tx < columns; ++tx)
      for (int64_t c = 0; c < clean.channels; ++c)
        for (int64_t d = 0; d < 4; ++d) {
          const int64_t from = (y * columns + tx) * packed + c * 4 + d;
          const int64_t to = (c * clean.height + 2 * y + d / 2) * clean.width + 2 * tx + d % 2;
          clean.values[static_cast<size_t>(to)] = latent[from] - step.sigma * velocity[from];
        }
  return clean;
}

uint8_t level(float value) {
  return static_cast<uint8_t>(std::clamp(std::lround(value), 0l, 255l));
}

Tensor halved(const Tensor& pixels) {
  const int64_t height = pixels.dim(0) / 2, width = pixels.dim(1) / 2;
  Tensor out = Tensor::empty(DType::kU8, {height, width, 3});
  const uint8_t* from = pixels.data<uint8_t>();
  uint8_t* to = out.mutable_data<uint8_t>();
  const int64_t line = pixels.dim(1) * 3;
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        const uint8_t* at = from + 2 * y * line + 2 * x * 3 + c;
        *to++ = static_cast<uint8_t>((at[0] + at[3] + at[line] + at[line + 3] + 2) / 4);
      }
  return out;
}

}  // namespace

Tensor preview_pixels(const WatchedStep& step, const PreviewMap& map) {
  const CleanLatents clean = clean_latents(step);
  const int64_t stride = (std::max(clean.height, clean.width) + kMostPreviewSide - 1) / kMostPreviewSide;
  const int64_t height = clean.height / stride, width = clean.width / stride, plane = clean.height * clean.width;
  Tensor out = Tensor::empty(DType::kU8, {height, width, 3});
  uint8_t* to = out.mutable_data<uint8_t>();
  const int64_t channels = std::min<int64_t>(clean.channels, static_cast<int64_t>(map.factors.size()));
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      float colour[3] = {map.bias[0], map.bias[1], map.bias[2]};
      for (int64_t c = 0; c < channels; ++c) {
        const float z = clean.values[static_cast<size_t>(c * plane + y * stride * clean.width + x * stride)];
        for (size_t i = 0; i < 3; ++i) colour[i] += z * map.factors[static_cast<size_t>(c)][i];
      }
      for (const float value : colour) *to++ = level(value);
    }
  return out;
}

Tensor preview_by_vae(const WatchedStep& step, const models::VaeConfig& config, const models::VaeDecoder& decoder,
                      Backend& backend, DType dtype) {
  const CleanLatents clean = clean_latents(step);
  const int64_t stride = (std::max(clean.height, clean.width) + kMostVaeLatents - 1) / kMostVaeLatents;
  const int64_t height = clean.height / stride, width = clean.width / stride;
  Tensor small = Tensor::empty(DType::kF32, {1, clean.channels, 1, height, width});
  float* to = small.mutable_data<float>();
  for (int64_t c = 0; c < clean.channels; ++c)
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        float sum = 0;
        for (int64_t dy = 0; dy < stride; ++dy)
          for (int64_t dx = 0; dx < stride; ++dx)
            sum +=
                clean.values[static_cast<size_t>((c * clean.height + y * stride + dy) * clean.width + x * stride + dx)];
        *to++ = sum / static_cast<float>(stride * stride);
      }
  const Tensor z = denormalize_latents(backend, backend.upload(small.to(dtype)), config);
  const nn::Execution stage{.backend = backend, .dtype = dtype};
  const Tensor decoded = models::decode_latents(decoder, config, z, {}, nn::Ctx(stage, "vae"));  // [1, H, W, C]
  const Tensor pixels = ops::pixels(backend, decoded).select(0, 0).host();
  return pixels.slice(2, 0, 3).contiguous();
}

std::string encode_preview(Tensor pixels, const std::string& format) {
  constexpr int kPreviewQuality = 75;
  for (;; pixels = halved(pixels)) {
    std::string bytes = encode_image(format, {pixels, {}}, kPreviewQuality);
    if (bytes.size() <= kMostPreviewBytes || std::min(pixels.dim(0), pixels.dim(1)) < 16) return bytes;
  }
}

}  // namespace lockstep
