#include "measure/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/interrupt.h"
#include "measure/pair_sums.h"
#include "tensor/convert.h"
#include "tensor/element_blocks.h"

namespace lockstep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One thread's working memory: 128 KiB.
struct Scratch {
  alignas(64) std::byte raw[2][kBlockElements * 8];
  alignas(64) std::byte converted[2][kBlockElements * 8];
};

template <typename T>
const T* block_as(DType dtype, const std::byte* raw, int64_t count, std::byte* scratch) {
  if (dtype == DTypeOf<T>::kValue) return reinterpret_cast<const T*>(raw);
  convert_elements(raw, dtype, scratch, DTypeOf<T>::kValue, count);
  return reinterpret_cast<const T*>(scratch);
}

class Pass {
 public:
  Pass(const Tensor& reference, const Tensor& candidate, const Tolerance& tolerance)
      : reference_(reference),
        candidate_(candidate),
        tolerance_(tolerance),
        as_floats_(fits_float(reference.dtype()) && fits_float(candidate.dtype())) {}

  PairSums run(int64_t begin, int64_t end, Scratch& scratch, BinCounter& bins) const {
    PairSums sums;
    for (int64_t at = begin; at < end; at += kBlockElements)
      add_block(at, std::min(kBlockElements, end - at), scratch, bins, sums);
    return sums;
  }

 private:
  void add_block(int64_t at, int64_t count, Scratch& scratch, BinCounter& bins, PairSums& sums) const {
    const PairBlockView block{at,
                              count,
                              reference_.dtype(),
                              candidate_.dtype(),
                              reference_.raw(at, count, scratch.raw[0]),
                              candidate_.raw(at, count, scratch.raw[1])};
    if (as_floats_)
      add_floats(block, block_as<float>(block.reference_dtype, block.reference_raw, count, scratch.converted[0]),
                 block_as<float>(block.candidate_dtype, block.candidate_raw, count, scratch.converted[1]), tolerance_,
                 bins, sums);
    else
      add_doubles(block, block_as<double>(block.reference_dtype, block.reference_raw, count, scratch.converted[0]),
                  block_as<double>(block.candidate_dtype, block.candidate_raw, count, scratch.converted[1]), tolerance_,
                  bins, sums);
  }

  ElementBlocks reference_, candidate_;
  Tolerance tolerance_;
  bool as_floats_;
};

PairSums stream(const Pass& pass, int64_t count, ErrorHistogram& histogram) {
  const int64_t chunk = chunk_elements(count);
  // One result a chunk, joined in order: the same digits whatever the number of threads.
  std::vector<PairSums> parts(static_cast<size_t>((count + chunk - 1) / chunk));
#pragma omp parallel if (parts.size() > 1)
  {
    Scratch scratch;
    BinCounter bins;
#pragma omp for schedule(dynamic)
    for (size_t part = 0; part < parts.size(); ++part) {
      if (interrupted()) continue;
      const int64_t begin = static_cast<int64_t>(part) * chunk;
      parts[part] = pass.run(begin, std::min(begin + chunk, count), scratch, bins);
    }
#pragma omp critical(lockstep_merge_histogram)
    histogram.merge(bins.finish());
  }
  check_interrupt("diff");
  PairSums all;
  for (const PairSums& part : parts) all.merge(part);
  return all;
}

double cosine_of(const PairSums& sums) {
  if (sums.reference_squares == 0 || sums.candidate_squares == 0)
    return sums.reference_squares == sums.candidate_squares ? 1 : 0;
  // The product of the roots, not the root of the product: that one can overflow.
  const long double cosine = sums.products / (std::sqrt(sums.reference_squares) * std::sqrt(sums.candidate_squares));
  return static_cast<double>(std::clamp<long double>(cosine, -1, 1));
}

double ratio_or_limit(long double numerator, long double denominator) {
  if (denominator == 0) return numerator == 0 ? 0 : kInfinity;
  return static_cast<double>(numerator / denominator);
}

double range_ratio(const Statistics& reference, const Statistics& candidate) {
  const double r = reference.max - reference.min, c = candidate.max - candidate.min;
  if (r == 0) return c == 0 ? 1 : kInfinity;
  return c / r;  // NaN where a side has no finite value
}

void fill_errors(const PairSums& sums, TensorComparison& result) {
  result.finite_pairs = sums.finite_pairs;
  result.mismatches = sums.mismatches;
  result.nonfinite_mismatches = sums.nonfinite_mismatches;
  result.max_abs = sums.nonfinite_mismatches ? kInfinity : sums.max_abs;
  result.max_rel = sums.nonfinite_mismatches ? kInfinity : sums.max_rel;
  const long double n = static_cast<long double>(std::max<int64_t>(sums.finite_pairs, 1));
  result.mean_abs = static_cast<double>(sums.errors / n);
  result.rmse = static_cast<double>(std::sqrt(sums.squared_errors / n));
  result.relative_l2 = ratio_or_limit(std::sqrt(sums.squared_errors), std::sqrt(sums.reference_squares));
  result.cosine = cosine_of(sums);
  result.sqnr_db = sums.squared_errors == 0
                       ? kInfinity
                       : static_cast<double>(10 * std::log10(sums.reference_squares / sums.squared_errors));
  if (result.reference_dtype == result.candidate_dtype)
    result.ulps = TensorComparison::Ulps{sums.max_ulp, static_cast<double>(sums.ulps / n)};
}

}  // namespace

Shape index_from_position(const Shape& shape, int64_t position) {
  Shape index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = position % shape[axis];
    position /= shape[axis];
  }
  return index;
}

TensorComparison compare_tensors(const Tensor& reference, const Tensor& candidate,
                                 const std::optional<Tolerance>& tolerance) {
  TensorComparison result;
  result.reference_shape = reference.shape();
  result.candidate_shape = candidate.shape();
  result.reference_dtype = reference.dtype();
  result.candidate_dtype = candidate.dtype();
  result.same_shape = reference.shape() == candidate.shape();
  result.tolerance = tolerance ? *tolerance : default_tolerance(reference.dtype(), candidate.dtype());
  if (!result.same_shape) {
    result.reference = tensor_statistics(reference);
    result.candidate = tensor_statistics(candidate);
    result.range_ratio = range_ratio(result.reference, result.candidate);
    return result;
  }
  result.count = reference.numel();
  const PairSums sums = stream(Pass(reference, candidate, result.tolerance), result.count, result.histogram);
  fill_errors(sums, result);
  result.reference = sums.reference.statistics();
  result.candidate = sums.candidate.statistics();
  if (result.count > 0) result.range_ratio = range_ratio(result.reference, result.candidate);
  const int64_t worst = sums.first_nonfinite >= 0 ? sums.first_nonfinite : sums.worst;
  if (worst >= 0) {
    std::byte scratch[2][kBlockElements * 8];
    const std::byte* r = ElementBlocks(reference).raw(worst, 1, scratch[0]);
    const std::byte* c = ElementBlocks(candidate).raw(worst, 1, scratch[1]);
    result.worst =
        TensorComparison::Element{index_from_position(reference.shape(), worst),
                                  element_as_double(r, reference.dtype()), element_as_double(c, candidate.dtype())};
  }
  for (auto& quantile : result.quantiles)
    quantile.value = std::min(result.histogram.quantile(quantile.q), sums.max_abs);
  return result;
}

}  // namespace lockstep
