#include "backend/cpu/attention_pack.h"

#include "backend/cpu/panel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_pack.cpp"
#include "tensor/simd_targets.h"
// after the choice of targets
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after the target headers
#include "backend/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
void TurnRows(const uint32_t* rows, int64_t stride, int64_t count, uint32_t* to) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t r = 0; r < kPanel; ++r) to[i * kPanel + r] = rows[r * stride + i];
}
#else
// 4 x 4 at a time in 128-bit vectors, which every other target has.
void TurnRows(const uint32_t* rows, int64_t stride, int64_t count, uint32_t* to) {
  const hn::FixedTag<uint32_t, 4> four;
  const hn::FixedTag<uint64_t, 2> two;
  for (int64_t r = 0; r < kPanel; r += 4) {
    const uint32_t* from = rows + r * stride;
    for (int64_t i = 0; i < count; i += 4) {
      const auto a = hn::LoadU(four, from + i), b = hn::LoadU(four, from + stride + i);
      const auto c = hn::LoadU(four, from + 2 * stride + i), d = hn::LoadU(four, from + 3 * stride + i);
      const auto ab_low = hn::BitCast(two, hn::InterleaveLower(four, a, b));   // a0 b0 | a1 b1
      const auto ab_high = hn::BitCast(two, hn::InterleaveUpper(four, a, b));  // a2 b2 | a3 b3
      const auto cd_low = hn::BitCast(two, hn::InterleaveLower(four, c, d));
      const auto cd_high = hn::BitCast(two, hn::InterleaveUpper(four, c, d));
      uint32_t* at = to + i * kPanel + r;
      hn::StoreU(hn::BitCast(four, hn::InterleaveLower(two, ab_low, cd_low)), four, at);
      hn::StoreU(hn::BitCast(four, hn::InterleaveUpper(two, ab_low, cd_low)), four, at + kPanel);
      hn::StoreU(hn::BitCast(four, hn::InterleaveLower(two, ab_high, cd_high)), four, at + 2 * kPanel);
      hn::StoreU(hn::BitCast(four, hn::InterleaveUpper(two, ab_high, cd_high)), four, at + 3 * kPanel);
    }
  }
}
#endif

void PairRows(const uint16_t* a, const uint16_t* b, int64_t count, uint32_t* to) {
  const hn::RebindToUnsigned<Float> wide;
  const hn::Rebind<uint16_t, Float> narrow;
  for (int64_t i = 0; i < count; i += lanes()) {
    const auto low = hn::PromoteTo(wide, hn::LoadU(narrow, a + i));
    const auto high = hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, b + i)));
    hn::StoreU(hn::Or(low, high), wide, to + i);
  }
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {

HWY_EXPORT(TurnRows);
HWY_EXPORT(PairRows);

void turn_64_rows(const uint32_t* rows, int64_t stride, int64_t count, uint32_t* to) {
  HWY_DYNAMIC_DISPATCH(TurnRows)(rows, stride, count, to);
}
void pair_rows(const uint16_t* a, const uint16_t* b, int64_t count, uint32_t* to) {
  HWY_DYNAMIC_DISPATCH(PairRows)(a, b, count, to);
}

}  // namespace lockstep::cpu
#endif
