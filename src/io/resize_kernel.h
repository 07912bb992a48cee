// The one loop of resizing, compiled for each vector target.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep {

// to[i] = clamp((half + sum over t of weights[t] * from[t * stride + i]) >> bits) for i < length, in 32-bit integers.
struct WeightedRows {
  const uint8_t* from;
  size_t stride, length, taps;
  const int32_t* weights;
  int bits;
  uint8_t* to;
};
void add_weighted_rows(const WeightedRows& rows);

}  // namespace lockstep
