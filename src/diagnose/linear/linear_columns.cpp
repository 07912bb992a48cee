// A factor of its own for each input of the layer: a norm's weight that is in the weight already or was never applied,
// scales of channels that were moved into the weight and not taken out again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/case/thresholds.h"
#include "diagnose/linear/linear_report.h"
#include "diagnose/pointwise/vector_origin.h"
#include "measure/axis_words.h"
#include "measure/small_solve.h"

namespace lockstep {
namespace {

constexpr int64_t kMostInputs = 768;  // the factors of more are not solved for

// y[i, j] = sum_k x[i, k] W[j, k] s[k]: linear in s.
std::optional<std::vector<double>> solved_factors(const LinearProbe& probe) {
  const Values &x = probe.input(), &w = probe.weight();
  const Values mine = probe.without_bias();
  const size_t n = static_cast<size_t>(w.last()), columns = probe.columns().size();
  NormalEquations equations(n);
  std::vector<double> row(n);
  for (int64_t i = 0; i < x.rows(); ++i)
    for (size_t j = 0; j < columns; ++j) {
      const auto weights = w.row(probe.columns()[j]);
      for (size_t k = 0; k < n; ++k) row[k] = static_cast<double>(x.row(i)[k]) * weights[k];
      equations.add(row, mine.row(i)[j]);
    }
  return equations.solve();
}

}  // namespace

bool search_column_scales(const LinearProbe& probe, const LinearReport& report, Findings& out) {
  const int64_t inputs = probe.weight().last();
  const int64_t equations = probe.rows() * static_cast<int64_t>(probe.columns().size());
  if (inputs < 4 || inputs > kMostInputs || 2 * equations < 3 * inputs) return false;
  const auto solved = solved_factors(probe);
  if (!solved) return false;
  const std::vector<double>& factors = *solved;
  Values scaled = probe.input();
  for (int64_t i = 0; i < scaled.rows(); ++i)
    for (size_t k = 0; k < factors.size(); ++k) scaled.row(i)[k] *= static_cast<float>(factors[k]);
  const double residual = probe.candidate_with_input(scaled);
  if (!probe.good(residual)) return false;
  const ChannelRelation relation{factors, std::vector<double>(factors.size()), true, false, residual};
  if (auto origin = origin_of(probe.failing(), relation)) {
    origin->explanation = "what the layer is given; " + origin->explanation;
    origin->complexity = 1.2, origin->blame = Blame::kNone;
    out.push_back(std::move(*origin));
    return true;
  }
  // Nothing but ones and zeros: inputs that are left out.
  std::vector<bool> without(factors.size());
  bool whole = true;
  for (size_t k = 0; k < factors.size(); ++k) {
    without[k] = std::fabs(factors[k]) < kWholeNumber;
    whole = whole && (without[k] || std::fabs(factors[k] - 1) < kWholeNumber);
  }
  if (whole)
    return report.add(
        "linear.different_weight",
        fmt::format("x W^T + b with {} of {} inputs left out{}{}", std::count(without.begin(), without.end(), true),
                    without.size(), index_set_words("input", without).empty() ? "" : ": ",
                    index_set_words("input", without)),
        "the sum must run over all inputs", residual, 1.2);
  const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
  return report.add("linear.weight_scaled",
                    fmt::format("a factor of its own for each input, {:.3g} to {:.3g}", *low, *high),
                    "scales of the input's channels are missing, applied twice, or left in the weight", residual, 1.6);
}

}  // namespace lockstep
