#include "pipeline/latents.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tensor/convert.h"
#include "tensor/rehearsal.h"

namespace lockstep {

Tensor pack_latents(const Tensor& latents) {
  const int64_t b = latents.dim(0), c = latents.dim(1), h = latents.dim(2), w = latents.dim(3);
  if (h % 2 || w % 2)
    fail(Code::kBadInput, "pack", "latents of odd size",
         {.expected = "even height and width", .got = to_string(latents.shape())});
  // [B, C, y, dy, x, dx] → [B, y, x, C, dy, dx]
  return latents.contiguous()
      .reshape({b, c, h / 2, 2, w / 2, 2})
      .permute({0, 2, 4, 1, 3, 5})
      .contiguous()
      .reshape({b, (h / 2) * (w / 2), c * 4});
}

Tensor unpack_latents(const Tensor& packed, int64_t height, int64_t width) {
  const int64_t b = packed.dim(0), c = packed.dim(2) / 4;
  // [B, y, x, C, dy, dx] → [B, C, y, dy, x, dx]
  return packed.reshape({b, height / 2, width / 2, c, 2, 2})
      .permute({0, 3, 1, 4, 2, 5})
      .contiguous()
      .reshape({b, c, 1, height, width});
}

Tensor denormalize_latents(const Tensor& latents, const models::VaeConfig& config) {
  const DType dtype = latents.dtype();
  const auto rounded = [dtype](float v) {
    return dtype == DType::kBF16 ? float_from(bfloat16_from(v)) : dtype == DType::kF16 ? float_from(half_from(v)) : v;
  };
  std::vector<float> z = to_floats(latents);
  const int64_t channels = latents.dim(1), pixels = latents.dim(2) * latents.dim(3) * latents.dim(4);
  for (size_t i = 0; i < z.size(); ++i) {
    const size_t c = static_cast<size_t>(static_cast<int64_t>(i) / pixels % channels);
    const float inverse_std = rounded(1.0f / rounded(config.latents_std[c]));
    z[i] = rounded(rounded(z[i] / inverse_std) + rounded(config.latents_mean[c]));
  }
  return Tensor::from<float>(latents.shape(), std::span<const float>(z)).to(dtype);
}

Tensor pixels_from_decoded(const Tensor& decoded) {
  const DType dtype = decoded.dtype();
  const auto rounded = [dtype](float v) {
    return dtype == DType::kBF16 ? float_from(bfloat16_from(v)) : dtype == DType::kF16 ? float_from(half_from(v)) : v;
  };
  Tensor pixels = Tensor::empty(DType::kU8, decoded.shape());
  if (rehearsing()) return pixels;
  const std::vector<float> x = to_floats(decoded);
  uint8_t* out = pixels.mutable_data<uint8_t>();
  for (size_t i = 0; i < x.size(); ++i) {
    const float unit = std::clamp(rounded(rounded(x[i] * 0.5f) + 0.5f), 0.0f, 1.0f);
    out[i] =
        static_cast<uint8_t>(std::nearbyint(std::isnan(unit) ? 0.0f : unit * 255.0f));  // ties to even, as NumPy rounds
  }
  return pixels;
}

}  // namespace lockstep
