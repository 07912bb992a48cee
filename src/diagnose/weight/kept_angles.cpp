#include "diagnose/weight/kept_angles.h"
#include "diagnose/case/thresholds.h"

#include <fmt/format.h>

#include <cmath>

namespace lockstep {
namespace {

constexpr int64_t kFewestOutputs = 64, kFewestRows = 8;
constexpr double kFewestPairs = 20;

double cosine(const Values& v, int64_t i, int64_t j) {
  const double ii = squared_norm(v.row(i)), jj = squared_norm(v.row(j));
  return ii > 0 && jj > 0 ? dot(v.row(i), v.row(j)) / std::sqrt(ii * jj) : 0;
}

void centre(Values& x) {
  std::vector<double> mean(static_cast<size_t>(x.last()));
  for (int64_t i = 0; i < x.rows(); ++i)
    for (size_t k = 0; k < mean.size(); ++k) mean[k] += x.row(i)[k] / static_cast<double>(x.rows());
  for (int64_t i = 0; i < x.rows(); ++i)
    for (size_t k = 0; k < mean.size(); ++k) x.row(i)[k] -= static_cast<float>(mean[k]);
}

}  // namespace

std::optional<std::string> kept_angles(Values x, Values y, bool centred) {
  if (y.last() < kFewestOutputs || x.rows() < kFewestRows || x.rows() != y.rows()) return std::nullopt;
  if (centred) centre(x), centre(y);
  double differing = 0, spread = 0, pairs = 0;
  for (int64_t i = 0; i < x.rows(); ++i)
    for (int64_t j = i + 1; j < x.rows(); ++j) {
      const double of_x = cosine(x, i, j), of_y = cosine(y, i, j), free = 1 - of_x * of_x;
      if (free < kNearlyTheSameAngle) continue;
      differing += (of_y - of_x) * (of_y - of_x) / (free * free), spread += of_x * of_x / (free * free), ++pairs;
    }
  if (pairs < kFewestPairs) return std::nullopt;
  const double n = static_cast<double>(y.last()), off = std::sqrt(differing / pairs * n),
               far = std::sqrt(spread / pairs * n);
  if (off > kMostAnglesOff || far < kLeastAnglesFar) return std::nullopt;
  return fmt::format("{:.2g} of what chance allows; no relation would be {:.2g}", off, far);
}

}  // namespace lockstep
