// Compiled once for each vector target; the best one for this CPU is chosen at run time.
#include "compare/comparison_kernel.h"

#include "compare/error_histogram.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compare/comparison_kernel.cpp"
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
  size_t mismatches = 0;

  // Written out: an implicit constructor would be compiled without the target's instructions.
  HWY_INLINE DoubleSums()
      : reference(hn::Zero(DoubleTag())),
        candidate(reference),
        reference_squares(reference),
        candidate_squares(reference),
        products(reference),
        errors(reference),
        squared_errors(reference) {}

  HWY_INLINE void add(const float* r_at, const float* c_at, Doubles tolerance_abs, Doubles tolerance_rel) {
    const DoubleTag dd;
    const hn::Rebind<float, DoubleTag> half;
    const Doubles r = hn::PromoteTo(dd, hn::LoadU(half, r_at)), c = hn::PromoteTo(dd, hn::LoadU(half, c_at));
    const Doubles error = hn::Sub(c, r),
                  size = hn::Abs(error);  // the difference of two floats, exact but for huge ratios
    reference = hn::Add(reference, r);
    candidate = hn::Add(candidate, c);
    reference_squares = hn::MulAdd(r, r, reference_squares);
    candidate_squares = hn::MulAdd(c, c, candidate_squares);
    products = hn::MulAdd(r, c, products);
    errors = hn::Add(errors, size);
    squared_errors = hn::MulAdd(error, error, squared_errors);
    mismatches += hn::CountTrue(dd, hn::Gt(size, hn::MulAdd(tolerance_rel, hn::Abs(r), tolerance_abs)));
  }
};

HWY_INLINE double total(Doubles a, Doubles b) {
  return hn::GetLane(hn::SumOfLanes(DoubleTag(), hn::Add(a, b)));
}

// Floats as integers in the order of their values, neighbours one apart.
template <typename Ints>
HWY_INLINE Ints ordered(Ints bits) {
  const hn::DFromV<Ints> di;
  const Ints magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
  return hn::IfThenElse(hn::Lt(bits, hn::Zero(di)), hn::Neg(magnitude), magnitude);
}

// Range, zeros and denormals of one side.
struct SideScan {
  Floats smallest, largest, normal;
  size_t zeros = 0, below_normal = 0;

  SideScan(const float* values, float smallest_normal)
      : smallest(hn::LoadU(FloatTag(), values)), largest(smallest), normal(hn::Set(FloatTag(), smallest_normal)) {}

  HWY_INLINE void add(Floats x, Floats size) {
    const FloatTag df;
    smallest = hn::Min(smallest, x);
    largest = hn::Max(largest, x);
    zeros += hn::CountTrue(df, hn::Eq(x, hn::Zero(df)));
    below_normal += hn::CountTrue(df, hn::Lt(size, normal));
  }

  void finish(BlockMoments& out) const {
    const FloatTag df;
    out.min = hn::GetLane(hn::MinOfLanes(df, smallest));
    out.max = hn::GetLane(hn::MaxOfLanes(df, largest));
    out.zero = static_cast<int64_t>(zeros);
    out.denormal = hn::GetLane(normal) > 0 ? static_cast<int64_t>(below_normal - zeros) : 0;
  }
};

#endif

int64_t compare_block(const PairBlockRequest& request, PairBlock& out) {
#if HWY_TARGET == HWY_SCALAR  // no vectors: the caller's scalar loop does it all
  (void)request, (void)out;
  return 0;
#else
  const FloatTag df;
  const hn::RebindToSigned<FloatTag> di;
  const hn::RebindToUnsigned<FloatTag> du;
  const hn::Repartition<uint64_t, FloatTag> du64;
  const DoubleTag dd;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const int64_t whole = request.count / lanes * lanes;
  if (whole == 0) return 0;
  const float* HWY_RESTRICT reference = request.reference;
  const float* HWY_RESTRICT candidate = request.candidate;
  uint32_t* HWY_RESTRICT bins = request.bins;
  const auto tolerance_abs = hn::Set(dd, request.tolerance_abs), tolerance_rel = hn::Set(dd, request.tolerance_rel);
  const auto low_halves = hn::Set(du64, 0xFFFFFFFFull);
  DoubleSums low, high;
  SideScan r_scan(reference, request.smallest_normal[0]), c_scan(candidate, request.smallest_normal[1]);
  auto max_error = hn::Zero(df), max_relative = hn::Zero(df);
  auto max_ulp = hn::Zero(du);
  auto ulps = hn::Zero(du64);
  for (int64_t i = 0; i < whole; i += lanes) {
    const auto r = hn::LoadU(df, reference + i), c = hn::LoadU(df, candidate + i);
    const auto r_size = hn::Abs(r), size = hn::Abs(hn::Sub(c, r));
    r_scan.add(r, r_size);
    c_scan.add(c, hn::Abs(c));
    max_error = hn::Max(max_error, size);
    // 0 / 0 and x / 0 are masked out, so that only pairs with a reference count
    const auto relative = hn::IfThenElseZero(hn::Gt(r_size, hn::Zero(df)), hn::Div(size, r_size));
    max_relative = hn::Max(max_relative, relative);
    hn::StoreU(hn::ShiftRight<ErrorHistogram::kShift>(hn::BitCast(du, size)), du, bins + i);
    const auto r_order = ordered(hn::BitCast(di, r)), c_order = ordered(hn::BitCast(di, c));
    const auto apart = hn::BitCast(du, hn::Sub(hn::Max(r_order, c_order), hn::Min(r_order, c_order)));
    max_ulp = hn::Max(max_ulp, apart);
    const auto pairs = hn::BitCast(du64, apart);
    ulps = hn::Add(ulps, hn::Add(hn::And(pairs, low_halves), hn::ShiftRight<32>(pairs)));
    low.add(reference + i, candidate + i, tolerance_abs, tolerance_rel);
    high.add(reference + i + lanes / 2, candidate + i + lanes / 2, tolerance_abs, tolerance_rel);
  }
  r_scan.finish(out.reference);
  c_scan.finish(out.candidate);
  out.reference.sum = total(low.reference, high.reference);
  out.candidate.sum = total(low.candidate, high.candidate);
  out.reference.sum_of_squares = total(low.reference_squares, high.reference_squares);
  out.candidate.sum_of_squares = total(low.candidate_squares, high.candidate_squares);
  out.products = total(low.products, high.products);
  out.errors = total(low.errors, high.errors);
  out.squared_errors = total(low.squared_errors, high.squared_errors);
  out.mismatches = static_cast<int64_t>(low.mismatches + high.mismatches);
  out.max_error = hn::GetLane(hn::MaxOfLanes(df, max_error));
  out.max_relative = hn::GetLane(hn::MaxOfLanes(df, max_relative));
  out.max_ulp = hn::GetLane(hn::MaxOfLanes(du, max_ulp));
  out.ulps = hn::GetLane(hn::SumOfLanes(du64, ulps));
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
