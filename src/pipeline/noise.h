// torch's CPU normal numbers: the same seed gives the same noise.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "tensor/tensor.h"

namespace lockstep {

class TorchGenerator {
 public:
  explicit TorchGenerator(uint64_t seed);
  uint32_t next();  // MT19937
  std::optional<double> cached_normal;

 private:
  std::array<uint32_t, 624> state_;
  size_t at_ = 624;
};

Tensor torch_randn(const Shape& shape, DType dtype, TorchGenerator& generator);

}  // namespace lockstep
