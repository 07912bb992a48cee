#include "zoom/numbers.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace lockstep::zoom {
namespace {

constexpr float kSaturated = 1e4F;  // masks are written as -inf, -1e9, -65504 or the lowest float

bool is_saturated(float value) {
  return !std::isfinite(value) || std::fabs(value) >= kSaturated;
}

}  // namespace

Totals totals_of(const Numbers& numbers) {
  return lockstep::totals_of(std::span<const float>(numbers.values));
}

namespace {

// The same without any saturated element, in four sums at once; nothing where there is one.
std::optional<double> plain_distance(const float* a, const float* b, int64_t count) {
  double difference[4] = {}, squares[4] = {};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    bool plain = true;
    for (int lane = 0; lane < 4; ++lane) {
      const float x = a[i + lane], y = b[i + lane];
      plain &= std::fabs(x) < kSaturated && std::fabs(y) < kSaturated;  // false for NaN, too
      const double d = static_cast<double>(x) - y;
      difference[lane] += d * d;
      squares[lane] += static_cast<double>(y) * y;
    }
    if (!plain) return std::nullopt;
  }
  for (; i < count; ++i) {
    if (is_saturated(a[i]) || is_saturated(b[i])) return std::nullopt;
    const double d = static_cast<double>(a[i]) - b[i];
    difference[0] += d * d;
    squares[0] += static_cast<double>(b[i]) * b[i];
  }
  const double all = squares[0] + squares[1] + squares[2] + squares[3];
  const double apart = difference[0] + difference[1] + difference[2] + difference[3];
  if (all == 0) return apart == 0 ? 0 : 1;
  return std::sqrt(apart / all);
}

}  // namespace

double relative_distance(const float* a, const float* b, int64_t count) {
  if (const auto plain = plain_distance(a, b, count)) return *plain;
  double difference = 0, squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (is_saturated(a[i]) || is_saturated(b[i])) {
      if (a[i] == b[i]) {
        if (std::isfinite(a[i])) squares += static_cast<double>(a[i]) * a[i];
        continue;
      }
      if (is_saturated(a[i]) && is_saturated(b[i]) && std::signbit(a[i]) == std::signbit(b[i]) &&
          (std::isinf(a[i]) || std::isinf(b[i]) || std::max(std::fabs(a[i]), std::fabs(b[i])) > 1e8F)) {
        continue;
      }
      if (std::isnan(a[i]) && std::isnan(b[i])) continue;
      if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return 1;
    }
    const double d = static_cast<double>(a[i]) - b[i];
    difference += d * d;
    squares += static_cast<double>(b[i]) * b[i];
  }
  if (squares == 0) return difference == 0 ? 0 : 1;
  return std::sqrt(difference / squares);
}

}  // namespace lockstep::zoom
