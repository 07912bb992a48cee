// Each output of the layer is an output of some layer of the checkpoint, but not this one's: a fused weight cut at the
// wrong places (head by head where it lies third by third, or the reverse), outputs in the order they are packed in.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "diagnose/linear/linear_report.h"
#include "measure/residual.h"

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
  Residual unexplained;
  for (size_t i = 0; i < made.size(); ++i) {
    const double target = y.row(static_cast<int64_t>(i))[column];
    unexplained.add(made[i], target);
  }
  return unexplained.relative();
}

// Eight numbers of four bits in a word, the even ones in its low half: outputs in that order were never put back, or
// were put back though they had not been moved.
constexpr std::array<std::array<int64_t, 8>, 2> kWordOrders = {{{0, 2, 4, 6, 1, 3, 5, 7}, {0, 4, 1, 5, 2, 6, 3, 7}}};

}  // namespace

bool search_packed_rows(const LinearProbe& probe, const LinearReport& report) {
  const Values& w = probe.weight();
  if (w.rows() % 8) return false;
  for (const auto& order : kWordOrders) {
    const auto from = [&](int64_t row) { return row / 8 * 8 + order[static_cast<size_t>(row % 8)]; };
    std::vector<int64_t> sources = probe.columns();
    std::transform(sources.begin(), sources.end(), sources.begin(), from);
    const Values rows = take_rows(w, sources);
    std::vector<float> with_them = probe.bias() ? *probe.bias() : std::vector<float>();
    for (size_t j = 0; j < with_them.size(); ++j)
      with_them[j] = (*probe.bias())[static_cast<size_t>(from(static_cast<int64_t>(j)))];
    const std::vector<float>* const moved = with_them.empty() ? nullptr : &with_them;
    for (const std::vector<float>* bias : {probe.bias(), moved}) {
      const double residual = probe.candidate_rows(rows, bias);
      if (probe.good(residual))
        return report.add("linear.different_weight",
                          fmt::format("W's rows{} within each group of 8 in the order {}: eight numbers of four bits "
                                      "in a word, packed so that the even ones come first",
                                      bias && bias == moved ? " (and b)" : "", fmt::join(order, ", ")),
                          "put the outputs of a packed word back in order when the weight is unpacked", residual, 0.9);
    }
  }
  return false;
}

bool search_rows_elsewhere(const LinearProbe& probe, const LinearReport& report) {
  Case& failing = probe.failing();
  const Values& own = probe.weight();
  // Wrong ones alone: evenly spread over all, they may be just those that stay in place.
  std::vector<int64_t> columns;
  for (const int64_t k : sample_indices(static_cast<int64_t>(probe.columns().size()), kColumns))
    columns.push_back(probe.columns()[static_cast<size_t>(k)]);
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
  const bool own_rows =
      std::all_of(best.begin(), best.end(), [&](const Row& row) { return row.weight == failing.module + ".weight"; });
  const std::string moved_row =
      fmt::format("in another order, output {} is row {}", columns[example], best[example].row);
  const double residual = std::min(worst, failing.tolerance);
  return own_rows
             ? report.add("linear.different_weight", "W's rows (and b) " + moved_row,
                          "keep the rows of the weight in the file's order, or put the outputs back", residual, 1.4)
             : report.add("linear.other_weight",
                          "rows of its neighbours' weights " + moved_row + " of " + best[example].weight,
                          "cut the fused weight as it lies in the file: by thirds, or head by head", residual, 1.4);
}

}  // namespace lockstep
