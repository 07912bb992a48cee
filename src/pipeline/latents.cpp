#include "pipeline/latents.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "pipeline/map_floats.h"

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
  const int64_t channels = latents.dim(1), pixels = latents.dim(2) * latents.dim(3) * latents.dim(4);
  return map_floats(
      dtype,
      [&](int64_t i, float z) {
        const size_t c = static_cast<size_t>(i / pixels % channels);
        const float inverse_std = rounded_to(dtype, 1.0f / rounded_to(dtype, config.latents_std[c]));
        return rounded_to(dtype, z / inverse_std) + rounded_to(dtype, config.latents_mean[c]);
      },
      latents);
}

Tensor pixels_from_decoded(const Tensor& decoded) {
  const DType dtype = decoded.dtype();
  return map_floats(
      DType::kU8,
      [dtype](int64_t, float x) {
        const float unit = std::clamp(rounded_to(dtype, rounded_to(dtype, x * 0.5f) + 0.5f), 0.0f, 1.0f);
        return std::nearbyint(std::isnan(unit) ? 0.0f : unit * 255.0f);  // ties to even, as NumPy rounds
      },
      decoded);
}

}  // namespace lockstep
