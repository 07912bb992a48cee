// Each output of the layer is an output of some layer of the checkpoint, but not this one's: a fused weight cut at the
// wrong places (head by head where it lies third by third, or the reverse).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/families/linear_probe.h"

namespace lockstep {
namespace {

constexpr int64_t kColumns = 24;
constexpr size_t kMostWeights = 8;

struct Row {
  std::string weight;
  int64_t row = 0;
  double misfit = INFINITY;
};

double misfit(const std::vector<double>& made, const Values& y, size_t column) {
  double dd = 0, yy = 0;
  for (size_t i = 0; i < made.size(); ++i) {
    const double target = y.row(static_cast<int64_t>(i))[column];
    dd += (made[i] - target) * (made[i] - target), yy += target * target;
  }
  return yy > 0 ? std::sqrt(dd / yy) : INFINITY;
}

}  // namespace

bool search_rows_elsewhere(const LinearProbe& probe, double reference_residual, Findings& out) {
  Case& failing = probe.failing();
  const Values& own = probe.weight();
  const std::vector<int64_t> columns = sample_indices(own.rows(), kColumns);
  if (probe.rows() < 4 || columns.size() < 8) return false;
  Values y = probe.without_bias(columns);  // [rows, columns]
  if (probe.bias())
    for (int64_t i = 0; i < y.rows(); ++i)
      for (size_t j = 0; j < columns.size(); ++j) y.row(i)[j] += (*probe.bias())[static_cast<size_t>(columns[j])];
  std::vector<std::string> names;
  const std::string parent = parent_of(failing.module);
  for (const auto& [name, shape] : failing.weights_r->shapes())
    if (shape.size() == 2 && shape[1] == own.last() && parent_of(parent_of(name)) == parent &&
        names.size() < kMostWeights)
      names.push_back(name);
  const double most = std::max(4 * failing.tolerance, 1e-3);
  std::vector<double> most_off(columns.size());  // what a row may be off by at any one input
  for (size_t j = 0; j < columns.size(); ++j) {
    for (int64_t i = 0; i < y.rows(); ++i) most_off[j] += static_cast<double>(y.row(i)[j]) * y.row(i)[j];
    most_off[j] = most * std::sqrt(most_off[j]);
  }
  std::vector<Row> best(columns.size());
  for (const std::string& name : names) {
    const auto weight = failing.weight_r(name);
    const auto bias = failing.weight_r(parent_of(name) + ".bias");
    if (!weight) continue;
    std::vector<double> made(static_cast<size_t>(probe.rows()));  // what this row makes of each input
    for (int64_t row = 0; row < weight->rows(); ++row) {
      const auto make = [&](size_t i) {
        made[i] = (bias ? bias->v[static_cast<size_t>(row)] : 0.0f) +
                  dot(probe.input().row(static_cast<int64_t>(i)), weight->row(row));
      };
      make(0);  // rules most rows out
      bool possible = false;
      for (size_t j = 0; j < columns.size(); ++j) possible |= std::fabs(made[0] - y.row(0)[j]) <= most_off[j];
      if (!possible) continue;
      for (size_t i = 1; i < made.size(); ++i) make(i);
      for (size_t j = 0; j < columns.size(); ++j)
        if (const double off = misfit(made, y, j); off < best[j].misfit) best[j] = {name, row, off};
    }
  }
  double worst = 0;
  size_t moved = 0, example = 0;
  for (size_t j = 0; j < columns.size(); ++j) {
    worst = std::max(worst, best[j].misfit);
    if (best[j].weight == failing.module + ".weight" && best[j].row == columns[j]) continue;
    if (moved++ == 0) example = j;
  }
  if (moved == 0 || worst > most) return false;
  if (std::all_of(best.begin(), best.end(), [&](const Row& row) { return row.weight == failing.module + ".weight"; })) {
    out.push_back({"linear.different_weight",
                   fmt::format("reference: x W^T + b with W = {}.weight; yours: W's rows (and b) in another order, "
                               "output {} is row {}",
                               failing.module, columns[example], best[example].row),
                   "keep the rows of the weight in the file's order, or put the outputs back", "", reference_residual,
                   std::min(worst, failing.tolerance), 1.4, 0, Blame::kWeights});
    return true;
  }
  out.push_back({"linear.other_weight",
                 fmt::format("reference: x W^T + b with W = {}.weight; yours: rows of its neighbours' weights in "
                             "another order, output {} is row {} of {}",
                             failing.module, columns[example], best[example].row, best[example].weight),
                 "cut the fused weight as it lies in the file: by thirds, or head by head", "", reference_residual,
                 std::min(worst, failing.tolerance), 1.4, 0, Blame::kWeights});
  return true;
}

}  // namespace lockstep
