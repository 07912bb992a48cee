#include "measure/ulp.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace lockstep {
namespace {

// The bit pattern from which a magnitude is no number: infinity, or fp8 e4m3fn's only NaN.
template <typename T>
constexpr uint64_t first_nonfinite_bits() {
  if constexpr (std::is_same_v<T, double>)
    return 0x7FF0000000000000u;
  else if constexpr (std::is_same_v<T, float>)
    return 0x7F800000u;
  else if constexpr (std::is_same_v<T, Half>)
    return 0x7C00u;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return 0x7F80u;
  else if constexpr (std::is_same_v<T, Float8E4M3>)
    return 0x7Fu;
  else
    return 0x7Cu;  // Float8E5M2
}

template <size_t kBytes>
using UnsignedOfSize =
    std::conditional_t<kBytes == 8, uint64_t,
                       std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 2, uint16_t, uint8_t>>>;

// Sets `distance`; false when a value is not finite.
template <typename T>
bool distance_of(const std::byte* a, const std::byte* b, uint64_t& distance) {
  T x, y;
  std::memcpy(&x, a, sizeof(T));
  std::memcpy(&y, b, sizeof(T));
  if constexpr (std::is_integral_v<T>) {
    distance = x > y ? static_cast<uint64_t>(x) - static_cast<uint64_t>(y)
                     : static_cast<uint64_t>(y) - static_cast<uint64_t>(x);
    return true;
  } else {
    using Bits = UnsignedOfSize<sizeof(T)>;
    constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
    Bits p, q;
    std::memcpy(&p, &x, sizeof(T));
    std::memcpy(&q, &y, sizeof(T));
    const uint64_t p_size = static_cast<Bits>(p & ~kSign), q_size = static_cast<Bits>(q & ~kSign);
    if (p_size >= first_nonfinite_bits<T>() || q_size >= first_nonfinite_bits<T>()) return false;
    if (((p ^ q) & kSign) != 0)
      distance = p_size + q_size;
    else
      distance = std::max(p_size, q_size) - std::min(p_size, q_size);
    return true;
  }
}

}  // namespace

uint64_t ulp_distance(DType dtype, const std::byte* a, const std::byte* b) {
  return dispatch(dtype, [&]<typename T>(TypeTag<T>) {
    uint64_t distance = 0;
    distance_of<T>(a, b, distance);
    return distance;
  });
}

UlpSum sum_ulps(DType dtype, const std::byte* a, const std::byte* b, int64_t count) {
  return dispatch(dtype, [&]<typename T>(TypeTag<T>) {
    UlpSum result;
    // Distances of types up to 32 bits cannot overflow a 64-bit sum of one block.
    using Sum = std::conditional_t<sizeof(T) == 8, long double, uint64_t>;
    Sum sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      uint64_t distance = 0;
      const int64_t at = i * static_cast<int64_t>(sizeof(T));
      if (!distance_of<T>(a + at, b + at, distance)) continue;
      result.max = std::max(result.max, distance);
      sum += static_cast<Sum>(distance);
    }
    result.sum = static_cast<long double>(sum);
    return result;
  });
}

}  // namespace lockstep
