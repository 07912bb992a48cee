// torch's CPU normal numbers, bit for bit: the same seed gives the same noise, hence the same picture.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "tensor/tensor.h"

namespace lockstep {

// MT19937 with torch's state beside it. Only the low 32 bits of the seed count.
class TorchGenerator {
 public:
  explicit TorchGenerator(uint64_t seed);

  uint32_t next();
  double next_uniform();  // [0, 1) with 53 bits, from two draws
  // One of a pair; the other is kept for the next call, however many numbers are drawn in between by other means.
  double next_normal();

 private:
  static constexpr size_t kWords = 624;
  void refill();

  std::array<uint32_t, kWords> state_;
  size_t at_ = kWords;
  std::optional<double> second_normal_;
};

// torch.randn(shape, dtype=dtype, generator=generator) of torch 2.13 on x86-64 with AVX2 or AVX-512: f32, f64, f16,
// bf16. The three ways torch draws (fewer than 16 values, f32 and f64, the half types) are three different streams.
Tensor torch_randn(const Shape& shape, DType dtype, TorchGenerator& generator);

}  // namespace lockstep
