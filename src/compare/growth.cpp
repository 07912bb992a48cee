#include "compare/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr double kTiny = 1e-9;      // below any rounding: two zeros have no ratio
constexpr double kInfinite = 1e9;   // above any error that has a size
constexpr double kMostRate = 3;     // no rounding grows faster, stage by stage
constexpr double kSmallStep = 1.6;  // the least step that is told

std::string step_words(const std::vector<double>& errors, const std::vector<std::string>& names, const Growth& growth) {
  const std::string& at = names[growth.jump_at];
  if (!std::isfinite(errors[growth.jump_at])) return fmt::format("NaN or infinities begin at {}: a bug there", at);
  if (errors[growth.jump_at - 1] <= kTiny) return fmt::format("the error begins at {}: a bug there, not rounding", at);
  return fmt::format("the error jumps by {:.3g} at {}: a bug there, not rounding", growth.jump, at);
}

// Where rounding grows evenly even a step of a few times is no part of it: it stands alone, and it lasts.
bool is_small_step(const std::vector<double>& errors, const std::vector<double>& sorted_factors, const Growth& growth) {
  constexpr size_t kBefore = 3, kAfter = 3, kLeastFactors = 8;
  if (sorted_factors.size() < kLeastFactors || growth.jump_at < kBefore || growth.jump_at + kAfter > errors.size() ||
      growth.jump < kSmallStep || errors[growth.jump_at - 1] <= kTiny)
    return false;
  std::vector<double> apart;
  for (const double factor : sorted_factors) apart.push_back(std::fabs(std::log(factor / growth.rate)));
  std::sort(apart.begin(), apart.end());
  const double spread = std::max(0.05, 1.5 * apart[apart.size() / 2]), height = std::log(growth.jump / growth.rate);
  const double next = std::log(sorted_factors[sorted_factors.size() - 2] / growth.rate);
  if (height < 8 * spread || next > 0.5 * height) return false;
  for (size_t i = growth.jump_at; i < errors.size(); ++i)
    if (errors[i] < errors[growth.jump_at - 1] * std::sqrt(growth.jump)) return false;
  return true;
}

}  // namespace

Growth fit_growth(const std::vector<double>& errors, const std::vector<std::string>& names) {
  Growth out;
  out.kind = "none";
  std::vector<double> factors;
  for (size_t i = 1; i < errors.size(); ++i) {
    const auto size = [](double error) { return std::isfinite(error) ? std::max(error, kTiny) : kInfinite; };
    const double factor = size(errors[i]) / size(errors[i - 1]);
    factors.push_back(factor);
    if (factor > out.jump) out.jump = factor, out.jump_at = i;
  }
  if (factors.size() < 2 || *std::max_element(errors.begin(), errors.end()) <= kTiny) {
    if (!factors.empty() && out.jump > 30) out.kind = "step", out.words = step_words(errors, names, out);
    return out;
  }
  std::vector<double> sorted = factors;
  std::sort(sorted.begin(), sorted.end());
  out.rate = sorted[sorted.size() / 2];
  // A step stands out from the usual factor by far more than the factors differ among themselves.
  const double height = std::log(out.jump / out.rate);
  double spread = 0;
  for (const double factor : factors) spread += std::fabs(std::log(factor / out.rate));
  spread = std::max(0.3, (spread - height) / static_cast<double>(factors.size()));
  if (height > 6 * spread && out.jump > 8) {
    out.kind = "step";
    out.words = step_words(errors, names, out);
  } else if (is_small_step(errors, sorted, out)) {
    out.kind = "step";
    out.words = fmt::format(
        "the error steps up by {:.3g} at {}, other stages change it by {:.3g}: rounding grows evenly, so look there",
        out.jump, names[out.jump_at], out.rate);
  } else if (out.rate < kMostRate && out.rate > 1 / kMostRate) {
    out.kind = "smooth";
    out.words = fmt::format("the error changes by {:.3g} a stage without a jump: this is how rounding grows", out.rate);
  }
  return out;
}

}  // namespace lockstep
