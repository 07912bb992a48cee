#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "io/resize_kernel.cpp"
#include "tensor/simd_targets.h"
// after the choice of targets
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once an instruction set.
#include <hwy/highway.h>

#include "io/resize_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void weighted_rows(const WeightedRows& rows) {
  const hn::ScalableTag<int32_t> d;
  const hn::Rebind<uint8_t, decltype(d)> bytes;
  const size_t lanes = hn::Lanes(d);
  const int32_t half = rows.bits > 0 ? 1 << (rows.bits - 1) : 0;
  const auto product = [&](size_t t, size_t i) {
    return hn::Mul(hn::PromoteTo(d, hn::LoadU(bytes, rows.from + t * rows.stride + i)), hn::Set(d, rows.weights[t]));
  };
  const auto store = [&](auto sum, size_t i) {
    hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRightSame(sum, rows.bits)), bytes, rows.to + i);
  };
  size_t i = 0;
  for (; i + 3 * lanes <= rows.length; i += 3 * lanes) {  // three sums at once hide the product's latency
    auto a = hn::Set(d, half), b = a, c = a;
    for (size_t t = 0; t < rows.taps; ++t) {
      a = hn::Add(a, product(t, i));
      b = hn::Add(b, product(t, i + lanes));
      c = hn::Add(c, product(t, i + 2 * lanes));
    }
    store(a, i);
    store(b, i + lanes);
    store(c, i + 2 * lanes);
  }
  for (; i + lanes <= rows.length; i += lanes) {
    auto sum = hn::Set(d, half);
    for (size_t t = 0; t < rows.taps; ++t) sum = hn::Add(sum, product(t, i));
    store(sum, i);
  }
  for (; i < rows.length; ++i) {
    int32_t sum = half;
    for (size_t t = 0; t < rows.taps; ++t) sum += rows.from[t * rows.stride + i] * rows.weights[t];
    sum >>= rows.bits;
    rows.to[i] = static_cast<uint8_t>(sum < 0 ? 0 : sum > 255 ? 255 : sum);
  }
}

}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(weighted_rows);

void add_weighted_rows(const WeightedRows& rows) {
  HWY_DYNAMIC_DISPATCH(weighted_rows)(rows);
}

}  // namespace lockstep
#endif
