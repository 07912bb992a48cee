// The small float formats by their definition, with ldexp and frexp: slow, obvious, and what the fast code answers to.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep::naive {

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

// NaN becomes the quiet one with the sign kept.
template <int kExponent, int kMantissa, bool kFinite>
uint32_t encode(float x) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr uint32_t kTop = (1u << kExponent) - 1;
  constexpr uint32_t kNan = kFinite ? (1u << (kExponent + kMantissa)) - 1 : (kTop << kMantissa | 1u << (kMantissa - 1));
  constexpr uint32_t kOverflow = kFinite ? kNan : kTop << kMantissa;
  const uint32_t sign = std::bit_cast<uint32_t>(x) >> 31 << (kExponent + kMantissa);
  if (std::isnan(x)) return sign | kNan;
  if (std::isinf(x)) return sign | kOverflow;
  const double magnitude = std::fabs(static_cast<double>(x));
  if (magnitude == 0.0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
  const int lowest = 1 - kBias;      // exponent of the smallest normal
  const int at = std::max(exponent - 1, lowest);
  // Counted in units of the last place; exact in double, so there is one rounding, ties to even.
  const int64_t steps = static_cast<int64_t>(std::nearbyint(std::ldexp(magnitude, kMantissa - at)));
  // A normal has 2^kMantissa to 2^(kMantissa+1) steps: the hidden bit and the carry move the exponent by themselves.
  const int64_t field = steps + (static_cast<int64_t>(at - lowest) << kMantissa);
  const int64_t largest = kFinite ? static_cast<int64_t>(kNan) - 1 : (static_cast<int64_t>(kTop) << kMantissa) - 1;
  return sign | (field > largest ? kOverflow : static_cast<uint32_t>(field));
}

}  // namespace lockstep::naive
