// Two tensors compared: every number a person asks for when two implementations disagree, from one streaming pass.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "measure/error_histogram.h"
#include "measure/tolerance.h"
#include "tensor/statistics.h"
#include "tensor/tensor.h"

namespace lockstep {

// The rules for what is not an ordinary number:
// - NaN against NaN, and an infinity against the same infinity, are equal pairs.
// - Any other pair with a NaN or an infinity is a mismatch at every tolerance. It counts in `nonfinite_mismatches`,
// makes
//   max_abs and max_rel infinite, and the first of them is the worst element.
// - Averages, sums, quantiles and ULPs are of the pairs that are finite on both sides.
// - +0 and -0 are equal. max_rel leaves out pairs whose reference is 0: their relative error has no meaning.
// - Nothing to compare (empty tensors of one shape): no error, cosine 1, and a match.
// - Unequal shapes: a mismatch; nothing is compared and only the two sides' statistics are filled in.
// - No error at all: sqnr_db is +infinity. A reference of zeros: relative_l2 is 0 without error, else infinite.
// - Either side without length: cosine is 1 when both are zero, else 0.
struct TensorComparison {
  Shape reference_shape, candidate_shape;
  DType reference_dtype = DType::kF32, candidate_dtype = DType::kF32;
  bool same_shape = false;
  Tolerance tolerance;

  int64_t count = 0;         // pairs compared
  int64_t finite_pairs = 0;  // of them, finite on both sides
  int64_t mismatches = 0;    // outside the tolerance, nonfinite_mismatches included
  int64_t nonfinite_mismatches = 0;

  double max_abs = 0, max_rel = 0, mean_abs = 0, rmse = 0;
  double relative_l2 = 0;  // |candidate - reference| / |reference|
  double cosine = 1;
  double sqnr_db = 0;      // 10 log10(signal power / error power)
  double range_ratio = 1;  // (max - min) of the candidate over that of the reference

  // Steps between neighbouring values of the dtype; integers: the difference. Only where the dtypes are equal.
  struct Ulps {
    uint64_t max = 0;
    double mean = 0;
  };
  std::optional<Ulps> ulps;

  struct Element {
    Shape index;
    double reference = 0, candidate = 0;
  };
  std::optional<Element> worst;  // the first of the largest errors; absent when all pairs are equal

  Statistics reference, candidate;
  ErrorHistogram histogram;  // of the absolute errors
  struct Quantile {
    double q, value;
  };
  std::array<Quantile, 4> quantiles{{{0.5, 0}, {0.9, 0}, {0.99, 0}, {0.999, 0}}};

  bool match() const { return same_shape && mismatches == 0; }
  double mismatch_share() const { return count ? static_cast<double>(mismatches) / static_cast<double>(count) : 0; }
};

// Without a tolerance, that of the dtypes.
TensorComparison compare_tensors(const Tensor& reference, const Tensor& candidate,
                                 const std::optional<Tolerance>& tolerance = std::nullopt);

Shape index_from_position(const Shape& shape, int64_t position);  // row major

}  // namespace lockstep
