// Compiled once for each vector target; the best one for this CPU is chosen at run time.
#include "measure/comparison_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/comparison_kernel.cpp"
#include "tensor/simd_targets.h"
// after the choice of targets
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

using FloatTag = hn::ScalableTag<float>;
using DoubleTag = hn::ScalableTag<double>;
using Floats = hn::Vec<FloatTag>;
using Doubles = hn::Vec<DoubleTag>;

// What is summed in double, over half a float vector: two of these run side by side to hide the latency of the adds.
struct DoubleSums {
  Doubles reference, candidate, reference_squares, candidate_squares, products, errors, squared_errors;

  // Written out: an implicit constructor would be compiled without the target's instructions.
  HWY_INLINE DoubleSums()
      : reference(hn::Zero(DoubleTag())),
        candidate(reference),
        reference_squares(reference),
        candidate_squares(reference),
        products(reference),
        errors(reference),
        squared_errors(reference) {}

  HWY_INLINE void add(const float* r_at, const float* c_at) {
    const DoubleTag dd;
    const hn::Rebind<float, DoubleTag> half;
    const Doubles r = hn::PromoteTo(dd, hn::LoadU(half, r_at)), c = hn::PromoteTo(dd, hn::LoadU(half, c_at));
    const Doubles error = hn::Sub(c, r);  // the difference of two floats, exact but for huge ratios
    reference = hn::Add(reference, r);
    candidate = hn::Add(candidate, c);
    reference_squares = hn::MulAdd(r, r, reference_squares);
    candidate_squares = hn::MulAdd(c, c, candidate_squares);
    products = hn::MulAdd(r, c, products);
    errors = hn::Add(errors, hn::Abs(error));
    squared_errors = hn::MulAdd(error, error, squared_errors);
  }
};

HWY_INLINE double total(Doubles a, Doubles b) {
  return hn::GetLane(hn::SumOfLanes(DoubleTag(), hn::Add(a, b)));
}

// Floats as integers in the order of their values, neighbours one apart and both zeros 0.
template <typename Ints>
HWY_INLINE Ints ordered(Ints bits) {
  const Ints sign = hn::ShiftRight<31>(bits);
  return hn::Sub(hn::Xor(hn::And(bits, hn::Set(hn::DFromV<Ints>(), 0x7FFFFFFF)), sign), sign);
}

// What most pairs are not: outside the tolerance, the largest relative error so far, zero, or below the normal numbers.
// One comparison finds the vectors that hold such a pair, with a little room, and only those are looked at closely.
class Oddities {
 public:
  Oddities(const PairBlockRequest& request, PairBlock& out)
      : request_(request), out_(out), floor_(hn::Set(FloatTag(), 1e-45f)) {
    constexpr double kRoom = 1 - 1e-6;  // more than the roundings of float add up to
    const FloatTag df;
    tolerance_abs_ = hn::Set(df, static_cast<float>(request.tolerance_abs * kRoom));
    tolerance_rel_ = hn::Set(df, static_cast<float>(request.tolerance_rel * kRoom));
    // Integers have no denormal numbers, but they have zeros.
    normal_ = hn::Set(df, std::max({request.smallest_normal[0], request.smallest_normal[1], 1e-45f}));
    expect(request.max_relative);
  }

  HWY_INLINE bool seen(Floats r_size, Floats c_size, Floats size) const {
    const FloatTag df;
    const auto outside = hn::MulAdd(tolerance_rel_, r_size, tolerance_abs_);
    const auto odd = hn::Max(hn::Min(outside, hn::Mul(relative_, r_size)), floor_);
    return !hn::AllFalse(df, hn::Or(hn::Ge(size, odd), hn::Lt(hn::Min(r_size, c_size), normal_)));
  }

  HWY_NOINLINE void count(const float* r_at, const float* c_at) {
    const FloatTag df;
    const auto r = hn::LoadU(df, r_at), c = hn::LoadU(df, c_at);
    const auto zero = hn::Zero(df), r_size = hn::Abs(r), c_size = hn::Abs(c), size = hn::Abs(hn::Sub(c, r));
    count_side(r_size, request_.smallest_normal[0], out_.reference);
    count_side(c_size, request_.smallest_normal[1], out_.candidate);
    // 0 / 0 and x / 0 are masked out, so that only pairs with a reference count
    const auto relative = hn::IfThenElseZero(hn::Gt(r_size, zero), hn::Div(size, r_size));
    const float largest = hn::GetLane(hn::MaxOfLanes(df, relative));
    if (largest > out_.max_relative) {
      out_.max_relative = largest;
      expect(std::max(largest, request_.max_relative));
    }
    out_.mismatches += mismatches(r_at, c_at) + mismatches(r_at + hn::Lanes(df) / 2, c_at + hn::Lanes(df) / 2);
  }

 private:
  void expect(float max_relative) { relative_ = hn::Set(FloatTag(), max_relative * (1 - 1e-6f)); }

  static HWY_INLINE void count_side(Floats size, float smallest_normal, BlockMoments& out) {
    const FloatTag df;
    const auto zeros = static_cast<int64_t>(hn::CountTrue(df, hn::Eq(size, hn::Zero(df))));
    out.zero += zeros;
    if (smallest_normal > 0)
      out.denormal += static_cast<int64_t>(hn::CountTrue(df, hn::Lt(size, hn::Set(df, smallest_normal)))) - zeros;
  }

  HWY_INLINE int64_t mismatches(const float* r_at, const float* c_at) const {
    const DoubleTag dd;
    const hn::Rebind<float, DoubleTag> half;
    const Doubles r = hn::PromoteTo(dd, hn::LoadU(half, r_at)), c = hn::PromoteTo(dd, hn::LoadU(half, c_at));
    const auto most = hn::MulAdd(hn::Set(dd, request_.tolerance_rel), hn::Abs(r), hn::Set(dd, request_.tolerance_abs));
    return static_cast<int64_t>(hn::CountTrue(dd, hn::Gt(hn::Abs(hn::Sub(c, r)), most)));
  }

  const PairBlockRequest& request_;
  PairBlock& out_;
  Floats floor_, tolerance_abs_, tolerance_rel_, normal_, relative_;
};

// Both walk [lane] of the histogram's copies, in the order in which the bins were stored.
HWY_INLINE void count_bins(const uint32_t* HWY_RESTRICT bins, uint32_t* HWY_RESTRICT counts) {
  constexpr size_t kLanes = hn::MaxLanes(FloatTag());
#pragma GCC unroll 16
  for (size_t lane = 0; lane < kLanes; ++lane) ++counts[lane * kHistogramStride + bins[lane]];
}

HWY_NOINLINE void take_back(const uint32_t* bins, int64_t count, uint32_t* counts) {
  const size_t lanes = hn::Lanes(FloatTag());
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) --counts[i % lanes * kHistogramStride + bins[i]];
}

// The sum of the steps between neighbours over a block in which some are too many for 32 bits.
HWY_NOINLINE uint64_t sum_of_wide_steps(const float* reference, const float* candidate, int64_t count) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t order[2];
    for (int side = 0; side < 2; ++side) {
      int32_t bits;
      std::memcpy(&bits, side ? candidate + i : reference + i, sizeof bits);
      const int64_t magnitude = bits & 0x7FFFFFFF;
      order[side] = bits < 0 ? -magnitude : magnitude;
    }
    sum += static_cast<uint64_t>(order[0] > order[1] ? order[0] - order[1] : order[1] - order[0]);
  }
  return sum;
}

#endif

int64_t compare_block(const PairBlockRequest& request, PairBlock& out) {
#if HWY_TARGET == HWY_SCALAR  // no vectors: the caller's scalar loop does it all
  (void)request, (void)out;
  return 0;
#else
  const FloatTag df;
  const hn::RebindToSigned<FloatTag> di;
  const hn::RebindToUnsigned<FloatTag> du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const int64_t whole = request.count / lanes * lanes;
  if (whole == 0) return 0;
  const float* HWY_RESTRICT reference = request.reference;
  const float* HWY_RESTRICT candidate = request.candidate;
  uint32_t* HWY_RESTRICT bins = request.bins;
  DoubleSums low, high;
  Oddities oddities(request, out);
  auto r_min = hn::LoadU(df, reference), r_max = r_min, c_min = hn::LoadU(df, candidate), c_max = c_min;
  auto max_error = hn::Zero(df);
  auto max_ulp = hn::Zero(du), ulps = hn::Zero(du);
  for (int64_t i = 0; i < whole; i += lanes) {
    const auto r = hn::LoadU(df, reference + i), c = hn::LoadU(df, candidate + i);
    const auto r_size = hn::Abs(r), c_size = hn::Abs(c), size = hn::Abs(hn::Sub(c, r));
    r_min = hn::Min(r_min, r);
    r_max = hn::Max(r_max, r);
    c_min = hn::Min(c_min, c);
    c_max = hn::Max(c_max, c);
    max_error = hn::Max(max_error, size);
    hn::StoreU(hn::ShiftRight<ErrorHistogram::kShift>(hn::BitCast(du, size)), du, bins + i);
    const auto r_order = ordered(hn::BitCast(di, r)), c_order = ordered(hn::BitCast(di, c));
    const auto apart = hn::BitCast(du, hn::Sub(hn::Max(r_order, c_order), hn::Min(r_order, c_order)));
    max_ulp = hn::Max(max_ulp, apart);
    ulps = hn::Add(ulps, apart);
    low.add(reference + i, candidate + i);
    high.add(reference + i + lanes / 2, candidate + i + lanes / 2);
    if (HWY_UNLIKELY(oddities.seen(r_size, c_size, size))) oddities.count(reference + i, candidate + i);
    // The bins of the vector before: the counting keeps the integer units busy while the vector units do the above.
    if (i > 0) count_bins(bins + i - lanes, request.counts);
  }
  count_bins(bins + whole - lanes, request.counts);
  out.reference.min = hn::GetLane(hn::MinOfLanes(df, r_min));
  out.reference.max = hn::GetLane(hn::MaxOfLanes(df, r_max));
  out.candidate.min = hn::GetLane(hn::MinOfLanes(df, c_min));
  out.candidate.max = hn::GetLane(hn::MaxOfLanes(df, c_max));
  out.reference.sum = total(low.reference, high.reference);
  out.candidate.sum = total(low.candidate, high.candidate);
  out.reference.sum_of_squares = total(low.reference_squares, high.reference_squares);
  out.candidate.sum_of_squares = total(low.candidate_squares, high.candidate_squares);
  out.errors = total(low.errors, high.errors);
  out.squared_errors = total(low.squared_errors, high.squared_errors);
  out.products = total(low.products, high.products);
  out.max_error = hn::GetLane(hn::MaxOfLanes(df, max_error));
  if (!std::isfinite(out.reference.sum_of_squares) || !std::isfinite(out.candidate.sum_of_squares) ||
      !std::isfinite(out.max_error)) {
    take_back(bins, whole, request.counts);
    return 0;
  }
  out.max_ulp = hn::GetLane(hn::MaxOfLanes(du, max_ulp));
  const uint64_t most_in_a_lane = static_cast<uint64_t>(out.max_ulp) * static_cast<uint64_t>(whole / lanes);
  if (most_in_a_lane >> 32) {
    out.ulps = sum_of_wide_steps(reference, candidate, whole);
  } else {
    alignas(64) uint32_t sums[kHistogramCopies];
    hn::StoreU(ulps, du, sums);
    out.ulps = 0;
    for (int64_t lane = 0; lane < lanes; ++lane) out.ulps += sums[lane];
  }
  return whole;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(compare_block);

int64_t compare_float_block(const PairBlockRequest& request, PairBlock& out) {
  return HWY_DYNAMIC_DISPATCH(compare_block)(request, out);
}

}  // namespace lockstep
#endif
