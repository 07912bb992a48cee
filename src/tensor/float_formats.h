// The small float formats as trivial types: bits in, value out. Rounding is to nearest, ties to even.
//
// Every value is the same in torch, NumPy and ml_dtypes. Where those disagree we follow one of them, bit for bit:
//   bf16, f8 NaNs   the sign survives, the payload does not (ml_dtypes)
//   f16 NaNs        sign and payload survive, made quiet (what the F16C and NEON instructions, and so torch, do)
//   f8_e4m3fn       beyond the largest value becomes NaN (ml_dtypes); torch 2.13 saturates, which hides an overflow
#pragma once
#include <bit>
#include <cstdint>

namespace lockstep {

struct BFloat16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};
struct Float8E4M3 {  // "fn": no infinities, 0x7F and 0xFF are NaN, largest 448
  uint8_t bits;
};
struct Float8E5M2 {
  uint8_t bits;
};

// A format narrower than f32 with IEEE layout: the constants that both the scalar and the vector code are made of.
template <int kExponentBits, int kMantissaBits, bool kFiniteOnly, bool kKeepsPayload>
struct SmallFloat {
  static constexpr bool kFinite = kFiniteOnly, kPayload = kKeepsPayload;
  static constexpr int kShift = 23 - kMantissaBits, kBits = 1 + kExponentBits + kMantissaBits;
  static constexpr uint32_t kSign = 1u << (kBits - 1), kMagnitude = kSign - 1;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;        // in f32 bits
  static constexpr uint32_t kInfinity = ((1u << kExponentBits) - 1) << kMantissaBits;  // or the top exponent of "fn"
  static constexpr uint32_t kNan = kFiniteOnly ? kMagnitude : kInfinity | 1u << (kMantissaBits - 1);
  static constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kBias) << 23;  // as f32 bits
  // A power of two whose last f32 bit is worth the smallest subnormal: adding it makes the FPU round there.
  static constexpr uint32_t kSubnormalMagic = static_cast<uint32_t>(151 - kBias - kMantissaBits) << 23;
};
using HalfFormat = SmallFloat<5, 10, false, true>;
using E4M3Format = SmallFloat<4, 3, true, false>;
using E5M2Format = SmallFloat<5, 2, false, false>;

template <typename Format>
constexpr float decode_small(uint32_t bits) {
  const uint32_t sign = (bits & Format::kSign) << (32 - Format::kBits), magnitude = bits & Format::kMagnitude;
  const uint32_t moved = magnitude << Format::kShift;
  uint32_t out = moved + Format::kRebias;
  if (magnitude < 1u << (23 - Format::kShift))  // zero or subnormal
    out = std::bit_cast<uint32_t>(std::bit_cast<float>(moved + Format::kSmallestNormal) -
                                  std::bit_cast<float>(Format::kSmallestNormal));
  if (Format::kFinite ? magnitude == Format::kNan : magnitude > Format::kInfinity)
    out = 0x7FC00000u | (Format::kPayload ? moved & 0x007FFFFFu : 0u);
  else if (!Format::kFinite && magnitude == Format::kInfinity)
    out = 0x7F800000u;
  return std::bit_cast<float>(sign | out);
}

template <typename Format>
constexpr uint32_t encode_small(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7FFFFFFFu;
  const uint32_t sign = bits >> 31 << (Format::kBits - 1);
  if (magnitude > 0x7F800000u)
    return sign | Format::kNan | (Format::kPayload ? (magnitude & 0x007FFFFFu) >> Format::kShift : 0u);
  if (magnitude < Format::kSmallestNormal)
    return sign |
           (std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(Format::kSubnormalMagic)) -
            Format::kSubnormalMagic);
  constexpr uint32_t kHalfUlp = (1u << (Format::kShift - 1)) - 1;
  const uint32_t rounded =
      (magnitude + kHalfUlp + (magnitude >> Format::kShift & 1u) - Format::kRebias) >> Format::kShift;
  constexpr uint32_t kOverflow = Format::kFinite ? Format::kNan : Format::kInfinity;
  return sign | (rounded < kOverflow ? rounded : kOverflow);
}

inline float float_from(BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

inline BFloat16 bfloat16_from(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
    return {static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x7FC0u)};  // every NaN becomes the quiet one
  return {static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16)};
}

inline float float_from(Half x) {
  return decode_small<HalfFormat>(x.bits);
}
inline Half half_from(float x) {
  return {static_cast<uint16_t>(encode_small<HalfFormat>(x))};
}
inline float float_from(Float8E4M3 x) {
  return decode_small<E4M3Format>(x.bits);
}
inline Float8E4M3 float8_e4m3_from(float x) {
  return {static_cast<uint8_t>(encode_small<E4M3Format>(x))};
}
inline float float_from(Float8E5M2 x) {
  return decode_small<E5M2Format>(x.bits);
}
inline Float8E5M2 float8_e5m2_from(float x) {
  return {static_cast<uint8_t>(encode_small<E5M2Format>(x))};
}

}  // namespace lockstep
