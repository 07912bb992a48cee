// What compare_tensors keeps while it streams: sums over pairs that can be joined in order, and the ways to feed them.
#pragma once
#include <cstdint>
#include <vector>

#include "measure/comparison_kernel.h"
#include "measure/error_histogram.h"
#include "measure/tolerance.h"
#include "tensor/statistics.h"

namespace lockstep {

struct PairSums {
  Moments reference, candidate;
  // long double: squares of f64 values neither overflow nor vanish
  long double reference_squares = 0, candidate_squares = 0, products = 0, squared_errors = 0, errors = 0, ulps = 0;
  int64_t finite_pairs = 0, mismatches = 0, nonfinite_mismatches = 0;
  // Rounded to float where all values are floats, so that which of two equal errors comes first never depends on how
  // the work was divided.
  double max_abs = 0, max_rel = 0;
  uint64_t max_ulp = 0;
  int64_t worst = -1, first_nonfinite = -1;  // row-major positions

  void merge(const PairSums& later);  // `later` holds higher positions
};

// The histogram of one thread while it is being filled.
class BinCounter {
 public:
  float max_error = 0;  // the largest error this thread has met: blocks that stay below need no second look

  BinCounter() : counts_(kHistogramCopies * kHistogramStride) {}
  uint32_t* counts() { return counts_.data(); }  // for the kernel, which then says how many it has counted
  void counted(int64_t count);
  void add_error(double error) { histogram_.add(error); }
  const ErrorHistogram& finish();

 private:
  void flush();
  std::vector<uint32_t> counts_;
  int64_t pending_ = 0;
  ErrorHistogram histogram_;
};

// A block of pairs as each of the two paths sees it.
struct PairBlockView {
  int64_t position, count;
  DType reference_dtype, candidate_dtype;
  const std::byte *reference_raw, *candidate_raw;  // in their own dtypes
};

// Any pairs, one by one. `reference` and `candidate` are the values as doubles.
void add_doubles(const PairBlockView& block, const double* reference, const double* candidate,
                 const Tolerance& tolerance, BinCounter& bins, PairSums& sums);

// Values that are all exactly floats; fast while they are finite.
void add_floats(const PairBlockView& block, const float* reference, const float* candidate, const Tolerance& tolerance,
                BinCounter& bins, PairSums& sums);

}  // namespace lockstep
