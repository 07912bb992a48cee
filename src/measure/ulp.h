// Distance in units in the last place: how many values of the dtype lie between two of its values.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace lockstep {

// +0 and -0 are one value. Integers and bool: the absolute difference. Both values must be finite.
uint64_t ulp_distance(DType dtype, const std::byte* a, const std::byte* b);

struct UlpSum {
  uint64_t max = 0;
  long double sum = 0;
};

// Over `count` contiguous pairs; those that are not finite on both sides are left out.
UlpSum sum_ulps(DType dtype, const std::byte* a, const std::byte* b, int64_t count);

}  // namespace lockstep
