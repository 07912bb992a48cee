#include "zoom/factors.h"

#include <cmath>

namespace lockstep::zoom {
namespace {

constexpr int64_t kFewest = 8;  // elements: fewer are multiples by chance
constexpr double kLeast = 8;    // tolerances that a factor is from 1: closer ones are no difference

}  // namespace

std::optional<double> common_factor(const Numbers& a, const Numbers& b, double tolerance) {
  if (a.count() != b.count() || a.count() < kFewest) return std::nullopt;
  double both = 0, squares = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    both += static_cast<double>(a.values[i]) * b.values[i];
    squares += static_cast<double>(b.values[i]) * b.values[i];
  }
  const double factor = both / squares;
  if (!std::isfinite(factor) || factor == 0 || std::fabs(factor - 1) <= kLeast * tolerance) return std::nullopt;
  Numbers scaled = b;
  for (float& value : scaled.values) value = static_cast<float>(value * factor);
  if (relative_distance(a.values.data(), scaled.values.data(), a.count()) > tolerance) return std::nullopt;
  return factor;
}

bool is_scaled_by(const Numbers& a, const Numbers& b, const Numbers& factors, double tolerance) {
  const int64_t width = factors.count();
  if (a.count() != b.count() || width < 2 || a.count() % width != 0 || b.shape.empty() || b.shape.back() != width)
    return false;
  Numbers scaled = b;
  for (int64_t i = 0; i < scaled.count(); ++i)
    scaled.values[static_cast<size_t>(i)] *= factors.values[static_cast<size_t>(i % width)];
  return relative_distance(a.values.data(), scaled.values.data(), a.count()) <= tolerance;
}

}  // namespace lockstep::zoom
