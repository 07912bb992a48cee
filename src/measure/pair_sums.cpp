#include "measure/pair_sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "measure/ulp.h"
#include "tensor/element_blocks.h"

namespace lockstep {
namespace {

bool same_nonfinite(double r, double c) {
  return (std::isnan(r) && std::isnan(c)) || r == c;
}

void note_max(double error, int64_t position, PairSums& sums) {
  if (error <= sums.max_abs) return;
  sums.max_abs = error;
  sums.worst = position;
}

// The error as the kernel sees it, unless that overflows.
double rounded_error(float r, float c) {
  const float rounded = std::abs(c - r);
  return std::isfinite(rounded) ? rounded : std::abs(static_cast<double>(c) - r);
}

void add_pair(double r, double c, double error, double rounded, int64_t position, const Tolerance& tolerance,
              BinCounter& bins, PairSums& sums) {
  if (!std::isfinite(r) || !std::isfinite(c)) {
    if (same_nonfinite(r, c)) return;
    ++sums.mismatches;
    ++sums.nonfinite_mismatches;
    if (sums.first_nonfinite < 0) sums.first_nonfinite = position;
    return;
  }
  ++sums.finite_pairs;
  sums.reference_squares += static_cast<long double>(r) * r;
  sums.candidate_squares += static_cast<long double>(c) * c;
  sums.products += static_cast<long double>(r) * c;
  sums.squared_errors += static_cast<long double>(error) * error;
  sums.errors += error;
  sums.mismatches += error > tolerance.absolute + tolerance.relative * std::abs(r);
  bins.add_error(error);
  note_max(rounded, position, sums);
  if (r != 0) sums.max_rel = std::max(sums.max_rel, error / std::abs(r));
}

// 64-bit integers beyond 2^53 can differ and still be one double.
double exact_error(const PairBlockView& block, int64_t i, double r, double c) {
  if (block.reference_dtype != block.candidate_dtype) return std::abs(c - r);
  if (block.reference_dtype == DType::kI64 || block.reference_dtype == DType::kU64)
    return static_cast<double>(
        ulp_distance(block.reference_dtype, block.reference_raw + 8 * i, block.candidate_raw + 8 * i));
  return std::abs(c - r);
}

void add_ulps(const PairBlockView& block, int64_t begin, PairSums& sums) {
  if (block.reference_dtype != block.candidate_dtype || begin == block.count) return;
  const int64_t skip = begin * static_cast<int64_t>(dtype_bytes(block.reference_dtype));
  const UlpSum found =
      sum_ulps(block.reference_dtype, block.reference_raw + skip, block.candidate_raw + skip, block.count - begin);
  sums.max_ulp = std::max(sums.max_ulp, found.max);
  sums.ulps += found.sum;
}

// Whether the kernel's own ULPs, counted in steps of f32, are those of the dtype, and how far they must be shifted:
// bf16 is the upper half of f32.
int ulp_shift(const PairBlockView& block) {
  if (block.reference_dtype != block.candidate_dtype) return -1;
  if (block.reference_dtype == DType::kF32) return 0;
  return block.reference_dtype == DType::kBF16 ? 16 : -1;
}

void add_kernel_block(const PairBlock& found, const PairBlockView& block, int64_t done, const float* r, const float* c,
                      BinCounter& bins, PairSums& sums) {
  sums.reference.merge(Moments::of_block(found.reference, done));
  sums.candidate.merge(Moments::of_block(found.candidate, done));
  sums.finite_pairs += done;
  sums.reference_squares += found.reference.sum_of_squares;
  sums.candidate_squares += found.candidate.sum_of_squares;
  sums.products += found.products;
  sums.squared_errors += found.squared_errors;
  sums.errors += found.errors;
  sums.mismatches += found.mismatches;
  sums.max_rel = std::max<double>(sums.max_rel, found.max_relative);
  // The kernel only says that a record fell; who holds it is looked up here. Records are rare.
  if (found.max_error <= bins.max_error) return;
  bins.max_error = found.max_error;
  int64_t at = 0;
  while (std::abs(c[at] - r[at]) != found.max_error) ++at;
  note_max(found.max_error, block.position + at, sums);
}

}  // namespace

void PairSums::merge(const PairSums& later) {
  reference.merge(later.reference);
  candidate.merge(later.candidate);
  reference_squares += later.reference_squares;
  candidate_squares += later.candidate_squares;
  products += later.products;
  squared_errors += later.squared_errors;
  errors += later.errors;
  ulps += later.ulps;
  finite_pairs += later.finite_pairs;
  mismatches += later.mismatches;
  nonfinite_mismatches += later.nonfinite_mismatches;
  max_rel = std::max(max_rel, later.max_rel);
  max_ulp = std::max(max_ulp, later.max_ulp);
  if (later.max_abs > max_abs) {
    max_abs = later.max_abs;
    worst = later.worst;
  }
  if (first_nonfinite < 0) first_nonfinite = later.first_nonfinite;
}

void BinCounter::counted(int64_t count) {
  pending_ += count;
  if (pending_ > (int64_t{1} << 31)) flush();  // before a counter of 32 bits can overflow
}

void BinCounter::flush() {
  for (size_t copy = 0; copy < kHistogramCopies; ++copy)
    for (size_t bin = 0; bin < ErrorHistogram::kBins; ++bin)
      histogram_.add_count(bin, counts_[copy * kHistogramStride + bin]);
  std::fill(counts_.begin(), counts_.end(), 0);
  pending_ = 0;
}

const ErrorHistogram& BinCounter::finish() {
  flush();
  return histogram_;
}

void add_doubles(const PairBlockView& block, const double* reference, const double* candidate,
                 const Tolerance& tolerance, BinCounter& bins, PairSums& sums) {
  const double r_normal = smallest_normal(block.reference_dtype), c_normal = smallest_normal(block.candidate_dtype);
  for (int64_t i = 0; i < block.count; ++i) {
    sums.reference.add(reference[i], r_normal);
    sums.candidate.add(candidate[i], c_normal);
    const double error = exact_error(block, i, reference[i], candidate[i]);
    add_pair(reference[i], candidate[i], error, error, block.position + i, tolerance, bins, sums);
  }
  add_ulps(block, 0, sums);
}

void add_floats(const PairBlockView& block, const float* reference, const float* candidate, const Tolerance& tolerance,
                BinCounter& bins, PairSums& sums) {
  alignas(64) uint32_t block_bins[kBlockElements];
  const double r_normal = smallest_normal(block.reference_dtype), c_normal = smallest_normal(block.candidate_dtype);
  PairBlock found;
  const int64_t done =
      compare_float_block({.reference = reference,
                           .candidate = candidate,
                           .count = block.count,
                           .smallest_normal = {static_cast<float>(r_normal), static_cast<float>(c_normal)},
                           .tolerance_abs = tolerance.absolute,
                           .tolerance_rel = tolerance.relative,
                           .max_relative = static_cast<float>(sums.max_rel),
                           .bins = block_bins,
                           .counts = bins.counts()},
                          found);
  const int shift = ulp_shift(block);
  if (done > 0) {
    bins.counted(done);
    add_kernel_block(found, block, done, reference, candidate, bins, sums);
    if (shift >= 0) {
      sums.max_ulp = std::max<uint64_t>(sums.max_ulp, found.max_ulp >> shift);
      sums.ulps += static_cast<long double>(found.ulps >> shift);
    }
  }
  for (int64_t i = done; i < block.count; ++i) {
    sums.reference.add(reference[i], r_normal);
    sums.candidate.add(candidate[i], c_normal);
    add_pair(reference[i], candidate[i], std::abs(static_cast<double>(candidate[i]) - reference[i]),
             rounded_error(reference[i], candidate[i]), block.position + i, tolerance, bins, sums);
  }
  add_ulps(block, shift >= 0 ? done : 0, sums);
}

}  // namespace lockstep
