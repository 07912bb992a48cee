#include "tensor/float_formats.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

// A binary float with `kExponent` exponent and `kMantissa` mantissa bits, IEEE layout; `kFinite` is the "fn" flavour.
template <int kExponent, int kMantissa, bool kFinite>
float decode(uint32_t bits) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  const bool negative = bits >> (kExponent + kMantissa) & 1u;
  const uint32_t exponent = bits >> kMantissa & ((1u << kExponent) - 1);
  const uint32_t mantissa = bits & ((1u << kMantissa) - 1);
  const float sign = negative ? -1.0f : 1.0f;
  const bool top = exponent == (1u << kExponent) - 1;
  if (kFinite ? (top && mantissa == (1u << kMantissa) - 1) : (top && mantissa != 0))
    return std::copysign(std::numeric_limits<float>::quiet_NaN(), sign);
  if (!kFinite && top) return sign * std::numeric_limits<float>::infinity();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), 1 - kBias - kMantissa);
  return sign *
         std::ldexp(static_cast<float>(mantissa | 1u << kMantissa), static_cast<int>(exponent) - kBias - kMantissa);
}

template <int kExponent, int kMantissa, bool kFinite>
uint32_t encode(float x) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr uint32_t kTop = (1u << kExponent) - 1;
  constexpr uint32_t kNan = kFinite ? (1u << (kExponent + kMantissa)) - 1 : (kTop << kMantissa | 1u << (kMantissa - 1));
  constexpr uint32_t kOverflow = kFinite ? kNan : kTop << kMantissa;
  const uint32_t sign = std::bit_cast<uint32_t>(x) >> 31 << (kExponent + kMantissa);
  if (std::isnan(x)) return sign | kNan;
  const float magnitude = std::fabs(x);
  if (std::isinf(x)) return sign | kOverflow;
  if (magnitude == 0.0f) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
  const int lowest = 1 - kBias;      // exponent of the smallest normal
  const int scale = std::max(exponent - 1, lowest) - kMantissa;
  const double steps = std::nearbyint(
      std::ldexp(static_cast<double>(magnitude), -scale));  // exact in double: one rounding, ties to even
  // `steps` counts units of 2^scale; for normals it lies in [2^kMantissa, 2^(kMantissa+1)], and the carry moves the
  // exponent by itself.
  const int64_t field =
      (scale + kMantissa == lowest)
          ? static_cast<int64_t>(steps)
          : static_cast<int64_t>(steps) + (static_cast<int64_t>(scale + kMantissa + kBias - 1) << kMantissa);
  const int64_t largest = kFinite ? static_cast<int64_t>(kNan) - 1 : (static_cast<int64_t>(kTop) << kMantissa) - 1;
  if (field > largest) return sign | kOverflow;
  return sign | static_cast<uint32_t>(field);
}

}  // namespace

float float_from(Half x) {
  return decode<5, 10, false>(x.bits);
}
Half half_from(float x) {
  return {static_cast<uint16_t>(encode<5, 10, false>(x))};
}
float float_from(Float8E4M3 x) {
  return decode<4, 3, true>(x.bits);
}
Float8E4M3 float8_e4m3_from(float x) {
  return {static_cast<uint8_t>(encode<4, 3, true>(x))};
}
float float_from(Float8E5M2 x) {
  return decode<5, 2, false>(x.bits);
}
Float8E5M2 float8_e5m2_from(float x) {
  return {static_cast<uint8_t>(encode<5, 2, false>(x))};
}

}  // namespace lockstep
