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

double misfit(const Values& x, const Values& y, int64_t column, std::span<const float> weight, float bias) {
  double dd = 0, yy = 0;
  for (int64_t i = 0; i < x.rows(); ++i) {
    double sum = bias;
    for (size_t k = 0; k < weight.size(); ++k) sum += static_cast<double>(x.row(i)[k]) * weight[k];
    const double target = y.row(i)[static_cast<size_t>(column)];
    dd += (sum - target) * (sum - target), yy += target * target;
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
  std::vector<Row> best(columns.size());
  for (const std::string& name : names) {
    const auto weight = failing.weight_r(name);
    const auto bias = failing.weight_r(parent_of(name) + ".bias");
    if (!weight) continue;
    for (size_t j = 0; j < columns.size(); ++j)
      for (int64_t row = 0; row < weight->rows(); ++row) {
        const float b = bias ? bias->v[static_cast<size_t>(row)] : 0.0f;
        const double off = misfit(probe.input(), y, static_cast<int64_t>(j), weight->row(row), b);
        if (off < best[j].misfit) best[j] = {name, row, off};
      }
  }
  double worst = 0;
  size_t moved = 0, example = 0;
  for (size_t j = 0; j < columns.size(); ++j) {
    worst = std::max(worst, best[j].misfit);
    if (best[j].weight == failing.module + ".weight" && best[j].row == columns[j]) continue;
    if (moved++ == 0) example = j;
  }
  if (moved == 0 || worst > std::max(4 * failing.tolerance, 1e-3)) return false;
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
