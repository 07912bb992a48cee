// The weight and something of low rank: an adapter merged on one side, or the strongest directions of the weight kept
// apart in a branch that is missing. The difference of the outputs is looked at over all rows that were recorded, as
// it takes more of them than its rank.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "diagnose/case/thresholds.h"
#include "diagnose/linear/linear_calls.h"
#include "diagnose/linear/linear_report.h"

namespace lockstep {
namespace {

constexpr int64_t kRowsOfRank = 224, kOutputsOfRank = 192;
constexpr int64_t kMostForDirections = int64_t{1} << 24;  // numbers of a weight whose directions are looked at

using Matrix = std::vector<std::vector<double>>;  // rows

double squares(const std::vector<double>& row) {
  return std::inner_product(row.begin(), row.end(), row.begin(), 0.0);
}

struct Directions {
  Matrix found;     // orthogonal
  double rest = 0;  // squares that they leave
};

// Gram-Schmidt, the largest row first, until next to nothing is left; one more than `most`: too much was.
Directions directions_of(Matrix rows, size_t most) {
  Directions out;
  std::vector<double> size;
  for (const auto& row : rows) size.push_back(squares(row));
  const double enough = kRestOfRank * std::accumulate(size.begin(), size.end(), 0.0);
  while (out.found.size() <= most) {
    const auto largest = std::max_element(size.begin(), size.end());
    out.rest = std::accumulate(size.begin(), size.end(), 0.0);
    if (out.rest <= enough || !(*largest > 0)) break;
    const std::vector<double> pivot = rows[static_cast<size_t>(largest - size.begin())];
    const double norm = *largest;
    for (size_t i = 0; i < rows.size(); ++i) {
      const double share = std::inner_product(rows[i].begin(), rows[i].end(), pivot.begin(), 0.0) / norm;
      for (size_t k = 0; k < pivot.size(); ++k) rows[i][k] -= share * pivot[k];
      size[i] = squares(rows[i]);
    }
    out.found.push_back(pivot);
  }
  return out;
}

struct RankRows {
  Matrix left, x;  // what is too much or too little of each output; what it was made from
  double yy = 0;
};

RankRows rows_of(const LinearProbe& probe, const std::vector<int64_t>& columns) {
  const Values& w = probe.weight();
  const CallRows calls = recorded_rows(probe.failing(), w.last(), w.rows(), 4 * kRowsOfRank);
  RankRows out;
  const auto add = [&](std::span<const float> x, auto&& product) {
    auto& row = out.left.emplace_back();
    for (size_t k = 0; k < columns.size(); ++k) {
      const double t = product(k);
      row.push_back(t - dot(x, w.row(columns[k]))), out.yy += t * t;
    }
    out.x.emplace_back(x.begin(), x.end());
  };
  for (const int64_t i : sample_indices(static_cast<int64_t>(calls.x.size()), kRowsOfRank))
    add(calls.x[static_cast<size_t>(i)], [&](size_t k) {
      const size_t j = static_cast<size_t>(columns[k]);
      return calls.y[static_cast<size_t>(i)][j] - (probe.bias() ? (*probe.bias())[j] : 0);
    });
  if (!calls.x.empty()) return out;
  const Values mine = probe.without_bias(columns);  // inputs were not recorded: those that are known
  for (int64_t i = 0; i < probe.rows(); ++i) add(probe.input().row(i), [&](size_t k) { return mine.row(i)[k]; });
  return out;
}

// Are these directions of the outputs the weight's own, so that W W^T leads from them to themselves?
bool are_its_own(const Matrix& directions, const Values& w) {
  double inside = 0, all = 0;
  std::vector<double> norms;
  for (const auto& d : directions) norms.push_back(std::sqrt(squares(d)));
  for (size_t a = 0; a < directions.size(); ++a) {
    std::vector<double> turned(static_cast<size_t>(w.last())), back(static_cast<size_t>(w.rows()));
    for (int64_t j = 0; j < w.rows(); ++j)
      for (size_t k = 0; k < turned.size(); ++k)
        turned[k] += directions[a][static_cast<size_t>(j)] / norms[a] * w.row(j)[k];
    for (int64_t j = 0; j < w.rows(); ++j)
      for (size_t k = 0; k < turned.size(); ++k) back[static_cast<size_t>(j)] += turned[k] * w.row(j)[k];
    all += squares(back);
    for (size_t b = 0; b < directions.size(); ++b)
      inside += std::pow(std::inner_product(back.begin(), back.end(), directions[b].begin(), 0.0) / norms[b], 2);
  }
  return all > 0 && all - inside < kOwnDirections * kOwnDirections * all;
}

}  // namespace

bool search_low_rank(const LinearProbe& probe, const LinearReport& report) {
  const Values& w = probe.weight();
  const std::vector<int64_t> columns = sample_indices(w.rows(), kOutputsOfRank);
  const RankRows rows = rows_of(probe, columns);
  const size_t most = std::min({rows.left.size(), columns.size(), static_cast<size_t>(w.last())}) / 3;
  if (most < 1 || !(rows.yy > 0)) return false;
  const Directions of_left = directions_of(rows.left, most);
  const size_t rank = of_left.found.size();
  const double residual = std::sqrt(of_left.rest / rows.yy);
  if (rank == 0 || rank > most || !probe.good(residual)) return false;
  // Inputs that are few themselves make any difference one of low rank.
  const size_t needed = rank + std::max<size_t>(2, rank / 2);
  if (directions_of(rows.x, needed).found.size() < needed) return false;
  const bool own = w.size() <= kMostForDirections &&
                   are_its_own(directions_of(rows_of(probe, sample_indices(w.rows(), w.rows())).left, most).found, w);
  return own ? report.add(
                   "linear.different_weight",
                   fmt::format("x (W - D)^T + b with D of rank {}, made of directions of W itself: a branch that "
                               "holds the strongest of them is missing",
                               rank),
                   "add the low-rank branch (its two factors) to what the rest of the weight gives", residual, 1.5)
             : report.add(
                   "linear.different_weight",
                   fmt::format("x (W + D)^T + b with D of rank {}: an adapter (LoRA) merged on one side only", rank),
                   "load the same adapters with the same strength on both sides", residual, 1.7);
}

}  // namespace lockstep
