#include "compare/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep {

Growth fit_growth(const std::vector<double>& errors, const std::vector<std::string>& names) {
  Growth out;
  out.kind = "none";
  std::vector<double> factors;
  constexpr double kTiny = 1e-9;  // below any rounding: two zeros have no ratio
  for (size_t i = 1; i < errors.size(); ++i) {
    const double before = std::max(errors[i - 1], kTiny),
                 after = std::isfinite(errors[i]) ? std::max(errors[i], kTiny) : 1e9;
    const double factor = after / before;
    factors.push_back(factor);
    if (factor > out.jump) out.jump = factor, out.jump_at = i;
  }
  if (factors.size() < 2 || *std::max_element(errors.begin(), errors.end()) <= kTiny) {
    if (!factors.empty() && out.jump > 30) {
      out.kind = "step";
      out.words = fmt::format("jumps by {:.3g} at {}", out.jump, names[out.jump_at]);
    }
    return out;
  }
  std::vector<double> sorted = factors;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
  out.rate = sorted[sorted.size() / 2];
  // A step stands out from the usual factor by far more than the factors differ among themselves.
  double spread = 0;
  for (const double factor : factors) spread += std::fabs(std::log(factor / out.rate));
  spread = std::max(0.3, (spread - std::fabs(std::log(out.jump / out.rate))) / static_cast<double>(factors.size()));
  if (std::log(out.jump / out.rate) > 6 * spread && out.jump > 8) {
    out.kind = "step";
    out.words = fmt::format("the error jumps by {:.3g} at {}: a bug there, not rounding", out.jump, names[out.jump_at]);
  } else {
    out.kind = "smooth";
    out.words = fmt::format("the error changes by {:.3g} a stage without a jump: this is how rounding grows", out.rate);
  }
  return out;
}

}  // namespace lockstep
