#include "base/number_text.h"

#include <fmt/format.h>

#include <cmath>

namespace lockstep {

std::string text_from_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 999.5 && unit < 6; ++unit) value /= 1000;
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, kUnits[unit]);
}

std::string text_from_count(int64_t count) {
  const std::string digits = fmt::format("{}", count < 0 ? -count : count);
  std::string out(count < 0 ? 1 : 0, '-');
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string text_from_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return fmt::format("{:.6g}", value);
}

std::string text_from_share(double share) {
  const double percent = 100 * share;
  if (percent == 0 || percent == 100) return fmt::format("{:.0f} %", percent);
  if (percent < 0.001) return "under 0.001 %";
  if (percent > 99.999) return "over 99.999 %";
  return fmt::format("{:.3g} %", percent);
}

}  // namespace lockstep
