#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/convert_simd.cpp"
#include "tensor/simd_targets.h"
// after the choice of targets
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once an instruction set.
#include <hwy/highway.h>

#include "tensor/convert_simd.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using U32 = hn::ScalableTag<uint32_t>;
using I32 = hn::ScalableTag<int32_t>;
using VF = hn::Vec<F32>;
using VU = hn::Vec<U32>;

struct BFloat16Lanes {
  using Bits = uint16_t;
  static HWY_INLINE VF widen(VU bits) { return hn::BitCast(F32(), hn::ShiftLeft<16>(bits)); }
  static HWY_INLINE VU narrow(VF x) {
    const U32 d;
    const VU bits = hn::BitCast(d, x), magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFFu));
    const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
    const VU rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFFu))));
    const VU nan = hn::Or(hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 0x8000u)), hn::Set(d, 0x7FC0u));
    return hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7F800000u)), nan, rounded);
  }
};

// The same steps as decode_small and encode_small, without branches.
template <typename Format, typename BitsType>
struct SmallLanes {
  using Bits = BitsType;
  static HWY_INLINE VF widen(VU bits) {
    const U32 d;
    const F32 df;
    const VU magnitude = hn::And(bits, hn::Set(d, Format::kMagnitude));
    const VU sign = hn::ShiftLeft<32 - Format::kBits>(hn::And(bits, hn::Set(d, Format::kSign)));
    const VU moved = hn::ShiftLeft<Format::kShift>(magnitude);
    const VU normal = hn::Add(moved, hn::Set(d, Format::kRebias));
    const VU smallest = hn::Set(d, Format::kSmallestNormal);
    const VU subnormal = hn::BitCast(d, hn::Sub(hn::BitCast(df, hn::Add(moved, smallest)), hn::BitCast(df, smallest)));
    VU out = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 1u << (23 - Format::kShift))), subnormal, normal);
    VU nan = hn::Set(d, 0x7FC00000u);
    if constexpr (Format::kPayload) nan = hn::Or(nan, hn::And(moved, hn::Set(d, 0x007FFFFFu)));
    if constexpr (Format::kFinite) {
      out = hn::IfThenElse(hn::Eq(magnitude, hn::Set(d, Format::kNan)), nan, out);
    } else {
      const VU infinity = hn::Set(d, Format::kInfinity);
      out = hn::IfThenElse(hn::Eq(magnitude, infinity), hn::Set(d, 0x7F800000u), out);
      out = hn::IfThenElse(hn::Gt(magnitude, infinity), nan, out);
    }
    return hn::BitCast(df, hn::Or(sign, out));
  }
  static HWY_INLINE VU narrow(VF x) {
    const U32 d;
    const F32 df;
    const VU bits = hn::BitCast(d, x), magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFFu));
    const VU sign = hn::ShiftRight<32 - Format::kBits>(hn::AndNot(hn::Set(d, 0x7FFFFFFFu), bits));
    const VU magic = hn::Set(d, Format::kSubnormalMagic);
    const VU subnormal = hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, magic))), magic);
    const VU odd = hn::And(hn::ShiftRight<Format::kShift>(magnitude), hn::Set(d, 1u));
    constexpr uint32_t kRound = (1u << (Format::kShift - 1)) - 1 - Format::kRebias;  // wraps, as the sum does
    const VU rounded = hn::ShiftRight<Format::kShift>(hn::Add(hn::Add(magnitude, odd), hn::Set(d, kRound)));
    const VU normal = hn::Min(rounded, hn::Set(d, Format::kFinite ? Format::kNan : Format::kInfinity));
    VU nan = hn::Set(d, Format::kNan);
    if constexpr (Format::kPayload)
      nan = hn::Or(nan, hn::ShiftRight<Format::kShift>(hn::And(magnitude, hn::Set(d, 0x007FFFFFu))));
    VU out = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, Format::kSmallestNormal)), subnormal, normal);
    out = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7F800000u)), nan, out);
    return hn::Or(sign, out);
  }
};

template <typename Lanes>
void widen_run(const void* from, float* to, int64_t count) {
  using Bits = typename Lanes::Bits;
  const hn::Rebind<Bits, U32> small;
  const U32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Bits* in = static_cast<const Bits*>(from);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const VU a = hn::PromoteTo(d, hn::LoadU(small, in + i)), b = hn::PromoteTo(d, hn::LoadU(small, in + i + lanes));
    hn::StoreU(Lanes::widen(a), F32(), to + i);
    hn::StoreU(Lanes::widen(b), F32(), to + i + lanes);
  }
  if (i == count) return;
  // The last few go through a full vector of their own: one arithmetic for all elements.
  HWY_ALIGN Bits padded[2 * hn::MaxLanes(U32())] = {};
  HWY_ALIGN float out[2 * hn::MaxLanes(U32())];
  for (int64_t j = i; j < count; ++j) padded[j - i] = in[j];
  hn::Store(Lanes::widen(hn::PromoteTo(d, hn::Load(small, padded))), F32(), out);
  hn::Store(Lanes::widen(hn::PromoteTo(d, hn::Load(small, padded + lanes))), F32(), out + lanes);
  for (int64_t j = i; j < count; ++j) to[j] = out[j - i];
}

template <typename Lanes>
void narrow_run(const float* from, void* to, int64_t count) {
  using Bits = typename Lanes::Bits;
  const hn::Rebind<Bits, I32> small;
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Bits* out = static_cast<Bits*>(to);
  const auto step = [&](const float* at) {
    return hn::DemoteTo(small, hn::BitCast(I32(), Lanes::narrow(hn::LoadU(d, at))));  // always in range: exact
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(step(from + i), small, out + i);
  if (i == count) return;
  HWY_ALIGN float padded[hn::MaxLanes(F32())] = {};
  HWY_ALIGN Bits last[hn::MaxLanes(F32())];
  for (int64_t j = i; j < count; ++j) padded[j - i] = from[j];
  hn::Store(step(padded), small, last);
  for (int64_t j = i; j < count; ++j) out[j] = last[j - i];
}

void Widen(const void* from, DType small, float* to, int64_t count) {
  switch (small) {
    case DType::kBF16:
      return widen_run<BFloat16Lanes>(from, to, count);
    case DType::kF16:
      return widen_run<SmallLanes<HalfFormat, uint16_t>>(from, to, count);
    case DType::kF8E4M3:
      return widen_run<SmallLanes<E4M3Format, uint8_t>>(from, to, count);
    default:
      return widen_run<SmallLanes<E5M2Format, uint8_t>>(from, to, count);
  }
}

void Narrow(const float* from, DType small, void* to, int64_t count) {
  switch (small) {
    case DType::kBF16:
      return narrow_run<BFloat16Lanes>(from, to, count);
    case DType::kF16:
      return narrow_run<SmallLanes<HalfFormat, uint16_t>>(from, to, count);
    case DType::kF8E4M3:
      return narrow_run<SmallLanes<E4M3Format, uint8_t>>(from, to, count);
    default:
      return narrow_run<SmallLanes<E5M2Format, uint8_t>>(from, to, count);
  }
}

}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);

void widen_to_f32(const void* from, DType small, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Widen)(from, small, to, count);
}
void narrow_from_f32(const float* from, DType small, void* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Narrow)(from, small, to, count);
}

}  // namespace lockstep
#endif
