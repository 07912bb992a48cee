// Compiled once for each vector target; the best one for this CPU is chosen at run time.
#include "tensor/statistics_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/statistics_kernel.cpp"
#include "tensor/simd_targets.h"
// after the choice of targets
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads as floats: `d` says how many.
template <class D>
hn::Vec<D> load_floats(D d, const float* at) {
  return hn::LoadU(d, at);
}

template <class D>
hn::Vec<D> load_floats(D d, const BFloat16* at) {
  const hn::Rebind<uint16_t, D> narrow;
  const auto bits = hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(at));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>(), bits)));
}

template <typename T>
int64_t block_moments(const T* HWY_RESTRICT values, int64_t count, float smallest_normal, BlockMoments& out) {
#if HWY_TARGET == HWY_SCALAR  // no vectors: the caller's scalar loop does it all
  (void)values, (void)count, (void)smallest_normal, (void)out;
  return 0;
#else
  const hn::ScalableTag<float> df;
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> half;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const int64_t whole = count / lanes * lanes;
  if (whole == 0) return 0;
  const auto zero = hn::Zero(df), normal = hn::Set(df, smallest_normal);
  auto sum_low = hn::Zero(dd), sum_high = hn::Zero(dd), squares_low = hn::Zero(dd), squares_high = hn::Zero(dd);
  auto smallest = load_floats(df, values), largest = smallest;
  size_t zeros = 0, below_normal = 0;
  for (int64_t i = 0; i < whole; i += lanes) {
    const auto x = load_floats(df, values + i);
    const auto low = hn::PromoteTo(dd, load_floats(half, values + i)),
               high = hn::PromoteTo(dd, load_floats(half, values + i + lanes / 2));
    sum_low = hn::Add(sum_low, low);
    sum_high = hn::Add(sum_high, high);
    squares_low = hn::MulAdd(low, low, squares_low);
    squares_high = hn::MulAdd(high, high, squares_high);
    smallest = hn::Min(smallest, x);
    largest = hn::Max(largest, x);
    zeros += hn::CountTrue(df, hn::Eq(x, zero));
    below_normal += hn::CountTrue(df, hn::Lt(hn::Abs(x), normal));
  }
  out.sum = hn::GetLane(hn::SumOfLanes(dd, hn::Add(sum_low, sum_high)));
  out.sum_of_squares = hn::GetLane(hn::SumOfLanes(dd, hn::Add(squares_low, squares_high)));
  out.min = hn::GetLane(hn::MinOfLanes(df, smallest));
  out.max = hn::GetLane(hn::MaxOfLanes(df, largest));
  out.zero = static_cast<int64_t>(zeros);
  out.denormal = smallest_normal > 0 ? static_cast<int64_t>(below_normal - zeros) : 0;
  return whole;
#endif
}

int64_t float_moments(const float* values, int64_t count, float smallest_normal, BlockMoments& out) {
  return block_moments(values, count, smallest_normal, out);
}

int64_t bfloat16_moments(const BFloat16* values, int64_t count, float smallest_normal, BlockMoments& out) {
  return block_moments(values, count, smallest_normal, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(float_moments);
HWY_EXPORT(bfloat16_moments);

int64_t float_block_moments(const float* values, int64_t count, float smallest_normal, BlockMoments& out) {
  return HWY_DYNAMIC_DISPATCH(float_moments)(values, count, smallest_normal, out);
}

int64_t bfloat16_block_moments(const BFloat16* values, int64_t count, float smallest_normal, BlockMoments& out) {
  return HWY_DYNAMIC_DISPATCH(bfloat16_moments)(values, count, smallest_normal, out);
}

}  // namespace lockstep
#endif
