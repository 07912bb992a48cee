// The vectorised inside of tensor_statistics: one block of floats.
#pragma once
#include <cstdint>

#include "tensor/float_formats.h"

namespace lockstep {

struct BlockMoments {
  double sum = 0,
         sum_of_squares = 0;  // not finite when the block holds a NaN or an infinity: nothing else is valid then
  float min = 0, max = 0;
  int64_t zero = 0, denormal = 0;
};

// Handles a multiple of the vector width and returns how many elements that was; the caller does the few that are left.
int64_t float_block_moments(const float* values, int64_t count, float smallest_normal, BlockMoments& out);
int64_t bfloat16_block_moments(const BFloat16* values, int64_t count, float smallest_normal, BlockMoments& out);

}  // namespace lockstep
