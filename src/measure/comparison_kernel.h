// The vectorised inside of compare_tensors: one block of pairs of floats, all of them finite.
#pragma once
#include <cstddef>
#include <cstdint>

#include "measure/error_histogram.h"
#include "tensor/statistics_kernel.h"

namespace lockstep {

struct PairBlockRequest {
  const float* reference;
  const float* candidate;
  int64_t count;
  float smallest_normal[2];             // of each side's dtype
  double tolerance_abs, tolerance_rel;  // a pair differs when |c - r| > abs + rel * |r|
  float max_relative;                   // known already: smaller relative errors are of no interest
  uint32_t* bins;                       // [count], scratch
  uint32_t* counts;                     // [kHistogramCopies][kHistogramStride], added to
};

// The error histogram while it is being filled, once for each lane of a vector: equal errors follow each other, and one
// counter would make each addition wait for the store of the one before. The stride keeps the copies of a bin out of
// each other's cache sets.
inline constexpr size_t kHistogramCopies = 16;
inline constexpr size_t kHistogramStride = ErrorHistogram::kBins + 16;

struct PairBlock {
  BlockMoments reference, candidate;
  double products = 0;  // sum of r * c
  double squared_errors = 0, errors = 0;
  float max_error = 0;     // rounded to float
  float max_relative = 0;  // of the pairs whose reference is not 0, where it is above the request's
  int64_t mismatches = 0;
  uint32_t max_ulp = 0;  // in steps of f32, +0 and -0 being one value
  uint64_t ulps = 0;     // their sum
};

// Handles a multiple of the vector width and returns how many pairs that was; the caller does the few that are left. 0
// where a value or a difference is not finite: then nothing was counted.
int64_t compare_float_block(const PairBlockRequest& request, PairBlock& out);

}  // namespace lockstep
