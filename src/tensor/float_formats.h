// The small float formats as trivial types: bits in, value out. Rounding is to nearest, ties to even, as in torch and
// ml_dtypes.
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

inline float float_from(BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

inline BFloat16 bfloat16_from(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
    return {static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x7FC0u)};  // every NaN becomes the quiet one
  return {static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16)};
}

float float_from(Half x);
Half half_from(float x);
float float_from(Float8E4M3 x);
Float8E4M3 float8_e4m3_from(float x);
float float_from(Float8E5M2 x);
Float8E5M2 float8_e5m2_from(float x);

}  // namespace lockstep
