#include "backend/sampling.h"

#include <algorithm>
#include <cmath>

#include "backend/check_storage.h"
#include "backend/map_floats.h"

namespace lockstep {

void euler_step_on_host(const EulerStepArgs& args) {
  check_storage("euler_step", {&args.x, &args.velocity, &args.out});
  const DType dtype = args.velocity.dtype();
  map_floats(
      args.out, [&](int64_t, float x, float v) { return x + rounded_to(dtype, args.dt * v); }, args.x, args.velocity);
}

void denormalize_on_host(const DenormalizeArgs& args) {
  check_storage("denormalize", {&args.x, &args.inverse_std, &args.mean, &args.out});
  const DType dtype = args.x.dtype();
  const int64_t channels = args.x.dim(1), inner = args.x.numel() / std::max<int64_t>(1, args.x.dim(0) * channels);
  const float *inverse_std = args.inverse_std.data<float>(), *mean = args.mean.data<float>();
  map_floats(
      args.out,
      [&](int64_t i, float z) {
        const int64_t c = i / inner % channels;
        return rounded_to(dtype, z / inverse_std[c]) + mean[c];
      },
      args.x);
}

void pixels_on_host(const PixelsArgs& args) {
  check_storage("pixels", {&args.x, &args.out});
  const DType dtype = args.x.dtype();
  map_floats(
      args.out,
      [dtype](int64_t, float x) {
        const float unit = std::clamp(rounded_to(dtype, rounded_to(dtype, x * 0.5f) + 0.5f), 0.0f, 1.0f);
        return std::nearbyint(std::isnan(unit) ? 0.0f : unit * 255.0f);  // ties to even, as NumPy rounds
      },
      args.x);
}

}  // namespace lockstep
