// The vectorised inside of compare_tensors: one block of pairs of floats, all of them finite.
#pragma once
#include <cstdint>

#include "tensor/statistics_kernel.h"

namespace lockstep {

struct PairBlockRequest {
  const float* reference;
  const float* candidate;
  int64_t count;
  float smallest_normal[2];             // of each side's dtype
  double tolerance_abs, tolerance_rel;  // a pair differs when |c - r| > abs + rel * |r|
  uint32_t* bins;                       // [count]: each pair's bin of the error histogram
};

struct PairBlock {
  BlockMoments reference, candidate;  // valid when both sums of squares are finite, and then all else is
  double products = 0;                // sum of r * c
  double squared_errors = 0, errors = 0;
  float max_error = 0;     // rounded to float; not finite when a difference overflowed
  float max_relative = 0;  // of the pairs whose reference is not 0
  int64_t mismatches = 0;
  uint32_t max_ulp = 0;  // in steps of f32, +0 and -0 being one value
  uint64_t ulps = 0;     // their sum
};

// Handles a multiple of the vector width and returns how many pairs that was; the caller does the few that are left.
int64_t compare_float_block(const PairBlockRequest& request, PairBlock& out);

}  // namespace lockstep
