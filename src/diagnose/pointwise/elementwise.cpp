// Each value of yours is a function of the reference's value at the same place, or the other way round. The function is
// looked for among the known ones, up to a factor and an offset; where none fits, that it is a function at all is said.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "diagnose/search/fit.h"
#include "diagnose/search/functions.h"

namespace lockstep {
namespace {

constexpr size_t kMostSamples = 20000;

struct Samples {
  std::vector<double> r, c;
};

Samples thinned(const Case& failing) {
  Samples out;
  const size_t stride = std::max<size_t>(1, failing.r.v.size() / kMostSamples) | 1;  // odd: no column is left out
  for (size_t i = 0; i < failing.r.v.size(); i += stride)
    out.r.push_back(failing.r.v[i]), out.c.push_back(failing.c.v[i]);
  return out;
}

struct AffineFit {
  double factor = 1, offset = 0, residual = INFINITY;
  bool is_plain() const { return factor == 1 && offset == 0; }
};

// y ~ factor f(x) + offset, the simplest that explains: f itself, f times a number, both.
AffineFit fit(const ElementFunction& function, const std::vector<double>& x, const std::vector<double>& y,
              double enough) {
  double sf = 0, sy = 0, sff = 0, sfy = 0, syy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double f = function.f(x[i]);
    if (!std::isfinite(f)) return {};
    sf += f, sy += y[i], sff += f * f, sfy += f * y[i], syy += y[i] * y[i];
  }
  if (syy == 0 || sff == 0) return {};
  const double n = static_cast<double>(x.size());
  const auto left = [&](double a, double b) {
    const double dd = syy + a * a * sff + n * b * b - 2 * a * sfy - 2 * b * sy + 2 * a * b * sf;
    return std::sqrt(std::max(0.0, dd) / syy);
  };
  AffineFit out{1, 0, left(1, 0)};
  if (out.residual <= enough) return out;
  const double a = sfy / sff;
  if (left(a, 0) <= enough) return {a, 0, left(a, 0)};
  const double variance = sff - sf * sf / n, both = variance > 1e-9 * sff ? (sfy - sf * sy / n) / variance : 0;
  const double b = (sy - both * sf) / n;
  if (left(both, b) <= enough) return {both, b, left(both, b)};
  return out;
}

std::string words(const ElementFunction& function, const AffineFit& fit) {
  std::string out = function.name;
  if (fit.factor != 1) out = number(fit.factor) + " * " + out;
  if (fit.offset != 0) out += fmt::format(" {:+.5g}", fit.offset);
  return out;
}

// One way: `made` from `source` by a known function. False when none fits.
bool search_known(const Case& failing, const std::vector<double>& source, const std::vector<double>& made, bool added,
                  Findings& out) {
  const double enough = std::max(2 * failing.tolerance, 0.02 * std::min(failing.error, 1.0));
  const ElementFunction* best = nullptr;
  AffineFit best_fit;
  double best_cost = INFINITY;
  for (const ElementFunction& function : element_functions().subspan(1)) {
    const AffineFit found = fit(function, source, made, enough);
    if (found.residual > enough) continue;
    const double cost = (found.is_plain() ? 0 : 1) + found.residual / enough;
    if (cost < best_cost) best = &function, best_fit = found, best_cost = cost;
  }
  if (!best) return false;
  const std::string formula = words(*best, best_fit);
  out.push_back({.cause = best->is_activation ? (added ? Cause("activation.added") : Cause("activation.missing"))
                                              : (added ? Cause("elementwise.added") : Cause("elementwise.missing")),
                 .explanation = added ? fmt::format("reference: x; yours: {} of it, element by element", formula)
                                      : fmt::format("reference: {}, element by element; yours: x itself", formula),
                 .fix = added ? fmt::format("remove {}", best->name) : fmt::format("apply {}", best->name),
                 .residual = best_fit.residual,
                 .complexity = best_fit.is_plain() ? 1.2 : 2.5});
  return true;
}

// Is the difference a function of the reference's value? Neighbours in value then differ by nearly the same amount.
void search_unknown(const Case& failing, const Samples& samples, Findings& out) {
  const size_t n = samples.r.size();
  if (n < 512) return;
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return samples.r[a] < samples.r[b]; });
  // The few largest and smallest lie far apart and would drown the rest.
  const size_t begin = n / 50, end = n - n / 50;
  double steps = 0, sum = 0, squares = 0;
  for (size_t i = begin; i < end; ++i) {
    const double d = samples.c[order[i]] - samples.r[order[i]];
    sum += d, squares += d * d;
    if (i == begin) continue;
    const double before = samples.c[order[i - 1]] - samples.r[order[i - 1]];
    steps += (d - before) * (d - before);
  }
  const double count = static_cast<double>(end - begin), mean = sum / count, variance = squares / count - mean * mean;
  if (!(variance > 0) || steps / (2 * count * variance) > 2e-3) return;
  std::string table;
  for (const double q : {0.02, 0.25, 0.5, 0.75, 0.98}) {
    const size_t at = order[static_cast<size_t>(q * static_cast<double>(n - 1))];
    table += fmt::format("{}{:.3g} -> {:.3g}", table.empty() ? "" : ", ", samples.r[at], samples.c[at]);
  }
  out.push_back(
      {.cause = "elementwise.function",
       .explanation =
           "reference: x; yours: a function of x alone, the same everywhere, none of the known ones (" + table + ")",
       .fix = "look for an operation on single elements that is added, missing or different here",
       .residual = failing.tolerance,
       .complexity = 4});
}

}  // namespace

void search_elementwise(Case& failing, Findings& out) {
  if (!std::isfinite(failing.error) || failing.r.size() < 16 || failing.r.size() != failing.c.size()) return;
  const Samples samples = thinned(failing);
  const size_t before = out.size();
  const double enough = std::max(2 * failing.tolerance, 0.02 * std::min(failing.error, 1.0));
  // A straight line is affine's to name: some functions are one on the values that occur.
  if (fit(element_functions()[0], samples.r, samples.c, enough).residual <= enough) return;
  if (!search_known(failing, samples.r, samples.c, true, out)) search_known(failing, samples.c, samples.r, false, out);
  if (out.size() == before) search_unknown(failing, samples, out);
}

}  // namespace lockstep
