#include "diagnose/sampler/schedule.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {

Schedule explain_schedule(const std::vector<double>& sigmas) {
  const size_t n = sigmas.size() - 1;
  Schedule best;
  const auto consider = [&](const std::string& words, const std::vector<double>& s) {
    double worst = 0;
    for (size_t i = 0; i < n; ++i) worst = std::max(worst, std::fabs(s[i] - sigmas[i]));
    if (worst < best.residual) best = {words, worst};
  };
  std::vector<double> even(n);
  for (size_t i = 0; i < n; ++i) even[i] = 1 - static_cast<double>(i) / static_cast<double>(n);
  consider("even steps", even);
  const auto shifted = [&](double mu) {
    std::vector<double> s(n);
    for (size_t i = 0; i < n; ++i) s[i] = std::exp(mu) / (std::exp(mu) + 1 / even[i] - 1);
    return s;
  };
  const auto stretched = [&](std::vector<double> s, double terminal) {
    const double factor = (1 - s[n - 1]) / (1 - terminal);
    for (double& value : s) value = 1 - (1 - value) / factor;
    return s;
  };
  if (n < 3) return best;
  for (int i = -300; i <= 400; ++i) {
    const double mu = 0.01 * i;
    if (i) consider(fmt::format("shifted by mu near {:.2f}", mu), shifted(mu));
    for (const double terminal : {0.02, 0.1, 0.05})
      if (n > 1)
        consider(
            fmt::format("{}stretched to end at {}", i ? fmt::format("shifted by mu near {:.2f}, ", mu) : "", terminal),
            stretched(shifted(mu), terminal));
  }
  return best;
}

std::string numbers(const std::vector<double>& x) {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(x.size(), 6); ++i) out += (i ? ", " : "") + fmt::format("{:.4g}", x[i]);
  return out + (x.size() > 6 ? ", ..." : "");
}

}  // namespace lockstep
