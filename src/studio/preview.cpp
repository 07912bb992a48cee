#include "studio/preview.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "io/image.h"
#include "nn/ctx.h"
#include "ops/elementwise.h"
#include "pipeline/latents.h"

namespace lockstep {
namespace {

constexpr int64_t kMostPreviewSide = 256;
constexpr int64_t kMostVaeLatents = 16;
constexpr int64_t kUnpackedBytes = 4096;  // so few are sent as they are: packing them takes longer than a preview may

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

typedef float Four __attribute__((vector_size(16)));  // the pixels of a token: compilers make single floats of loops
typedef uint8_t FourBytes __attribute__((vector_size(4)));

Four four_at(const float* from) {
  Four four;
  std::memcpy(&four, from, sizeof four);
  return four;
}

FourBytes levels(Four values) {
  const Four none{}, most = none + 255.0f;
  const Four positive = values > none ? values : none;  // what is no number is none either
  return __builtin_convertvector((positive < most ? positive : most) + 0.5f, FourBytes);
}

Tensor every(const Tensor& pixels, int64_t stride) {
  const int64_t height = pixels.dim(0) / stride, width = pixels.dim(1) / stride;
  Tensor out = Tensor::empty(DType::kU8, {height, width, 3});
  uint8_t* to = out.mutable_data<uint8_t>();
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      to = std::copy_n(pixels.data<uint8_t>() + (y * pixels.dim(1) + x) * stride * 3, 3, to);
  return out;
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
  const Tensor x = step.latents.host().contiguous().to(DType::kF32),
               v = step.velocity.host().contiguous().to(DType::kF32);
  const int64_t packed = x.dim(2), rows = step.grid.height, columns = step.grid.width;
  Tensor out = Tensor::empty(DType::kU8, {2 * rows, 2 * columns, 3});
  const float* latent = x.data<float>();
  const float* velocity = v.data<float>();
  uint8_t* pixels = out.mutable_data<uint8_t>();
  const size_t channels = std::min(static_cast<size_t>(packed / 4), map.factors.size());
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column, latent += packed, velocity += packed) {
      Four colour[3];  // of the four pixels of a token, which holds channel, dy, dx
      for (size_t i = 0; i < 3; ++i) colour[i] = Four{} + map.bias[i];
      for (size_t c = 0; c < channels; ++c) {
        const Four clean = four_at(latent + 4 * c) - step.sigma * four_at(velocity + 4 * c);
        for (size_t i = 0; i < 3; ++i) colour[i] += clean * map.factors[c][i];
      }
      const FourBytes shown[] = {levels(colour[0]), levels(colour[1]), levels(colour[2])};
      for (int64_t d = 0; d < 4; ++d) {
        uint8_t* to = pixels + ((2 * row + d / 2) * 2 * columns + 2 * column + d % 2) * 3;
        for (size_t i = 0; i < 3; ++i) to[i] = shown[i][static_cast<size_t>(d)];
      }
    }
  const int64_t stride = (2 * std::max(rows, columns) + kMostPreviewSide - 1) / kMostPreviewSide;
  return stride > 1 ? every(out, stride) : out;
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
    const PngPacking packing = pixels.numel() <= kUnpackedBytes ? PngPacking::kNone : PngPacking::kQuick;
    std::string bytes = encode_image(format, {pixels, {}}, kPreviewQuality, packing);
    if (bytes.size() <= kMostPreviewBytes || std::min(pixels.dim(0), pixels.dim(1)) < 16) return bytes;
  }
}

}  // namespace lockstep
