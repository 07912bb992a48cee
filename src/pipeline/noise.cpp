#include "pipeline/noise.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.h"

namespace lockstep {

TorchGenerator::TorchGenerator(uint64_t seed) {
  state_[0] = static_cast<uint32_t>(seed);
  for (uint32_t i = 1; i < 624; ++i) state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
}

uint32_t TorchGenerator::next() {
  if (at_ == 624) {
    for (size_t i = 0; i < 624; ++i) {
      const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % 624] & 0x7FFFFFFFu);
      state_[i] = state_[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908B0DFu : 0u);
    }
    at_ = 0;
  }
  uint32_t y = state_[at_++];
  y ^= y >> 11;
  y ^= y << 7 & 0x9D2C5680u;
  y ^= y << 15 & 0xEFC60000u;
  return y ^ y >> 18;
}

Tensor torch_randn(const Shape& shape, DType dtype, TorchGenerator& generator) {
  const size_t n = static_cast<size_t>(checked_numel(shape));
  if (n < 16) fail(Code::kUnsupported, "noise", "fewer than 16 values");
  std::vector<float> d(n);
  const auto uniform = [&] { return static_cast<float>(generator.next() & 0xFFFFFFu) * 0x1p-24f; };
  const auto transform = [&](size_t o) {
    for (size_t j = 0; j < 8; ++j) {
      const float u1 = 1.0f - d[o + j], theta = static_cast<float>(2 * std::numbers::pi) * d[o + 8 + j];
      const float r = std::sqrt(-2.0f * std::log(u1));
      d[o + j] = r * std::cos(theta);
      d[o + 8 + j] = r * std::sin(theta);
    }
  };
  for (float& v : d) v = uniform();
  for (size_t o = 0; o + 16 <= n; o += 16) transform(o);
  if (n % 16 != 0) {
    for (size_t i = n - 16; i < n; ++i) d[i] = uniform();
    transform(n - 16);
  }
  return Tensor::from<float>(shape, std::span<const float>(d)).to(dtype);
}

}  // namespace lockstep
