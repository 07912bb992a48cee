#include "diagnose/pointwise/activation_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "diagnose/search/fit.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

using Made = std::function<double(double)>;

double misfit_of(const Made& f, std::span<const float> x, std::span<const float> y, size_t step = 1) {
  Residual unexplained;
  for (size_t i = 0; i < y.size(); i += step) {
    unexplained.add(f(x[i]), y[i]);
  }
  return unexplained.relative();
}

// x (1 + tanh(u)) / 2 with u a short polynomial of x: GELU in its tanh form, x sigmoid(k x) and what is like them. u is
// solved for where the tanh is not yet flat.
std::optional<Curve> as_gate(std::span<const float> x, std::span<const float> y, double limit) {
  std::vector<float> u;
  std::vector<std::vector<float>> powers(5);
  for (size_t i = 0; i < x.size(); ++i) {
    const double gate = std::fabs(x[i]) > 0.1 ? 2.0 * y[i] / x[i] - 1 : 1;
    if (!(std::fabs(gate) < 0.98)) continue;
    u.push_back(static_cast<float>(std::atanh(gate)));
    for (size_t p = 0; p < powers.size(); ++p)
      powers[p].push_back(static_cast<float>(std::pow(static_cast<double>(x[i]), static_cast<double>(p))));
  }
  if (u.size() < 64) return std::nullopt;
  for (const std::vector<size_t>& used :
       {std::vector<size_t>{1}, {1, 2}, {1, 3}, {0, 1}, {1, 2, 3}, {0, 1, 3}, {1, 4}}) {
    std::vector<std::span<const float>> basis;
    for (const size_t p : used) basis.emplace_back(powers[p]);
    const std::vector<double> k = least_squares(basis, u);
    const auto inner = [&](double at) {
      double sum = 0;
      for (size_t t = 0; t < used.size(); ++t) sum += k[t] * std::pow(at, static_cast<double>(used[t]));
      return sum;
    };
    const double residual = misfit_of([&](double at) { return 0.5 * at * (1 + std::tanh(inner(at))); }, x, y);
    if (!(residual <= limit)) continue;
    if (used.size() == 1) return Curve{fmt::format("x sigmoid({:.5g} x)", 2 * k[0]), residual, 0.9};
    const size_t linear = used[0] == 1 ? 0 : 1;
    std::string sum = "x";
    for (size_t t = 0; t < used.size(); ++t)
      if (t != linear)
        sum += fmt::format(" {} {:.5g}{}", k[t] / k[linear] < 0 ? '-' : '+', std::fabs(k[t] / k[linear]),
                           used[t] == 0 ? "" : fmt::format(" x^{}", used[t]));
    return Curve{fmt::format("0.5 x (1 + tanh({:.5g} ({})))", k[linear], sum), residual, 1};
  }
  return std::nullopt;
}

// A form with one number in it, solved for: coarsely on a few values, then finely.
std::optional<Curve> as_form(std::span<const float> x, std::span<const float> y, double limit,
                             const std::function<double(double, double)>& form, const std::string& words) {
  const size_t step = std::max<size_t>(1, x.size() / 400);
  double best = INFINITY, at = 1;
  const auto consider = [&](double k, size_t thin) {
    const double left = misfit_of([&](double v) { return form(k, v); }, x, y, thin);
    if (left < best) best = left, at = k;
  };
  for (double k = 0.02; k < 50; k *= 1.08) consider(k, step);
  if (best > 0.1) return std::nullopt;  // the coarse grid is nearer than that to whatever fits
  best = INFINITY;
  consider(at, 1);
  for (double wide = 1.05; wide > 1.000001; wide = std::sqrt(wide))
    for (const double k : {at * wide, at / wide}) consider(k, 1);
  if (!(best <= limit)) return std::nullopt;
  return Curve{fmt::format(fmt::runtime(words), at), best, 1};
}

std::optional<Curve> as_known_form(std::span<const float> x, std::span<const float> y, double limit) {
  // The two forms of GELU are near each other: the nearer one is meant.
  const auto gate = as_gate(x, y, limit);
  const auto erf = as_form(
      x, y, limit, [](double k, double v) { return 0.5 * v * (1 + std::erf(k * v)); }, "0.5 x (1 + erf({:.5g} x))");
  if (gate && !(erf && erf->residual < 0.3 * gate->residual)) return gate;
  if (erf) return erf;
  if (auto leaky = as_form(
          x, y, limit, [](double k, double v) { return v > 0 ? v : k * v; }, "leaky ReLU(x), {:.5g}"))
    return leaky;
  if (auto elu = as_form(
          x, y, limit, [](double k, double v) { return v > 0 ? v : k * std::expm1(v); }, "ELU(x), {:.5g}"))
    return elu;
  for (const ElementFunction& function : element_functions().subspan(1)) {
    if (!function.is_activation) continue;
    const std::string name = function.name;
    if (auto wider = as_form(
            x, y, limit, [&](double k, double v) { return function.f(k * v); }, name + " of {:.5g} x"))
      return wider;
    if (auto steeper = as_form(
            x, y, limit, [&](double k, double v) { return function.f(k * v) / k; },
            name + " of {0:.5g} x, over {0:.5g}"))
      return steeper;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Curve> read_curve(const ElementFunction& known, std::span<const float> x, std::span<const float> y,
                                double limit, double rough) {
  const size_t n = y.size();
  if (n < 256) return std::nullopt;
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] < x[b]; });
  const auto apart = [&](size_t i) { return y[order[i]] - known.f(x[order[i]]); };
  // Neighbours in x differ from the known function by nearly the same. The few largest and smallest lie far apart and
  // would drown the rest.
  const size_t begin = n / 50, end = n - n / 50;
  double steps = 0, sum = 0, squares = 0, most = 0, where = 0;
  for (size_t i = begin; i < end; ++i) {
    const double d = apart(i);
    sum += d, squares += d * d;
    if (i > begin) steps += (d - apart(i - 1)) * (d - apart(i - 1));
    if (std::fabs(d) > most) most = std::fabs(d), where = x[order[i]];
  }
  const double count = static_cast<double>(end - begin), variance = squares / count - sum / count * (sum / count);
  if (!(variance > 0) || steps / (2 * count * variance) > rough) return std::nullopt;
  if (auto form = as_known_form(x, y, limit)) return form;
  std::string table;
  for (const double q : {0.02, 0.25, 0.5, 0.75, 0.98}) {
    const size_t at = order[static_cast<size_t>(q * static_cast<double>(n - 1))];
    table += fmt::format("{}{:.3g} -> {:.3g}", table.empty() ? "" : ", ", x[at], y[at]);
  }
  return Curve{fmt::format("{}; furthest off, by {:.3g}, near x = {:.3g}", table, most, where), 0, 1.6};
}

}  // namespace lockstep
