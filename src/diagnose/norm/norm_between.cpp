// A norm where the reference has none, or none where it has one, and nobody recorded it as a module: yours is the norm
// of the reference's tensor, or the reference's that of yours. Its weight, if any, is solved for.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/norm/norm_form.h"
#include "diagnose/search/fit.h"

namespace lockstep {
namespace {

constexpr int64_t kFewestNormRows = 8;  // a weight for each channel is fitted

struct NormFit {
  NormKind kind = NormKind::kNone;
  bool weighted = false;
  std::vector<double> weight;
  double residual = INFINITY;
};

// y = norm(x) * weight over the channels, [rows, channels].
NormFit fit_norm(const Values& x, const Values& y, NormKind kind) {
  NormParams p;
  p.kind = kind;
  const size_t n = static_cast<size_t>(x.last());
  std::vector<double> z(x.v.begin(), x.v.end());
  for (int64_t i = 0; i < x.rows(); ++i) normalise(z.data() + i * x.last(), x.last(), 1, p);
  NormFit out{kind, false, std::vector<double>(n, 1), INFINITY};
  std::vector<double> zz(n), zy(n);
  double plain = 0, weighted = 0, yy = 0;
  for (size_t i = 0; i < z.size(); ++i) zz[i % n] += z[i] * z[i], zy[i % n] += z[i] * y.v[i];
  for (size_t j = 0; j < n; ++j) out.weight[j] = zz[j] > 0 ? zy[j] / zz[j] : 1;
  for (size_t i = 0; i < z.size(); ++i) {
    plain += (z[i] - y.v[i]) * (z[i] - y.v[i]), yy += static_cast<double>(y.v[i]) * y.v[i];
    weighted += std::pow(z[i] * out.weight[i % n] - y.v[i], 2);
  }
  if (!(yy > 0)) return out;
  out.residual = std::sqrt(plain / yy);
  if (out.residual > 1e-3 && x.rows() >= kFewestNormRows && std::sqrt(weighted / yy) < 0.1 * out.residual)
    out.weighted = true, out.residual = std::sqrt(weighted / yy);
  return out;
}

// A norm takes any factor of its row away: that the reference's rows are normalised says nothing of yours then.
bool differ_by_row_factors(const Values& r, const Values& c, double tolerance) {
  double dd = 0, yy = 0;
  for (int64_t i = 0; i < r.rows(); ++i) {
    double xx = 0, xy = 0;
    for (size_t j = 0; j < r.row(i).size(); ++j) {
      const double x = r.row(i)[j], y = c.row(i)[j];
      xx += x * x, xy += x * y, yy += y * y;
    }
    for (size_t j = 0; j < r.row(i).size(); ++j)
      dd += std::pow(c.row(i)[j] - xy / std::max(xx, 1e-30) * r.row(i)[j], 2);
  }
  return dd <= tolerance * tolerance * yy;
}

}  // namespace

void search_norm_between(Case& failing, Findings& out) {
  if (!std::isfinite(failing.error) || failing.r.rank() < 2) return;
  const int axis = channel_axis(failing.name, failing.r.shape);
  const Values r = sampled(channels_last(failing.r, axis)), c = sampled(channels_last(failing.c, axis));
  if (r.rows() < 3 || r.last() < 8) return;
  const bool only_factors = differ_by_row_factors(r, c, 0.01);
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer, NormKind::kCentred, NormKind::kUnit})
    for (const bool added : {true, false}) {
      if (!added && only_factors) continue;
      const NormFit fit = added ? fit_norm(r, c, kind) : fit_norm(c, r, kind);
      if (fit.residual > std::max(2 * failing.tolerance, 5e-5) || !failing.is_better(fit.residual, failing.error))
        continue;
      if (fit.weighted && kind == NormKind::kCentred) continue;  // without a statistic the weight explains too much
      const std::string norm = fmt::format("{}{}", kind_name(kind), fit.weighted ? " times a weight" : "");
      out.push_back({.cause = added ? Cause("norm.added") : Cause("norm.missing"),
                     .explanation = added ? fmt::format("reference: y; yours: {} of y", norm)
                                          : fmt::format("reference: {} of what yours is", norm),
                     .fix = added ? "do not normalise here" : fmt::format("apply {} here", kind_name(kind)),
                     .residual = fit.residual,
                     .complexity = fit.weighted ? 1.7 : 1.3});
      return;
    }
}

}  // namespace lockstep
