#include "measure/statistics_error.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {

double least_error(const Statistics& c, const Statistics& r) {
  if (c.nan != r.nan || c.inf != r.inf || c.count != r.count) return std::numeric_limits<double>::infinity();
  if (!(r.rms > 0)) return c.rms > 0 ? std::numeric_limits<double>::infinity() : 0;
  // | ||c|| - ||r|| | and sqrt(n) |mean c - mean r| bound the distance from below; so does one element: the extremes.
  const double by_rms = std::fabs(c.rms - r.rms) / r.rms, by_mean = std::fabs(c.mean - r.mean) / r.rms;
  const double one = std::max(std::fabs(c.max - r.max), std::fabs(c.min - r.min)) /
                     (r.rms * std::sqrt(static_cast<double>(std::max<int64_t>(1, r.count))));
  return std::max({by_rms, by_mean, std::isfinite(one) ? one : 0});
}

}  // namespace lockstep
