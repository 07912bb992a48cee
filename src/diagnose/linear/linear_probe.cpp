#include "diagnose/linear/linear_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/linear/linear_calls.h"
#include "measure/axis_words.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr int64_t kProbedRows = 24, kProbedColumns = 64;

// ||x W^T + b - y|| / ||y|| over the columns.
double residual_of(const Values& x, const Values& y, const Values& w, const std::vector<float>* bias,
                   const std::vector<int64_t>& columns) {
  Residual unexplained;
  bool differs = false;  // from zeros
  for (int64_t i = 0; i < x.rows(); ++i) {
    const auto row = x.row(i);
    for (const int64_t j : columns) {
      const double sum = (bias ? (*bias)[static_cast<size_t>(j)] : 0) + dot(row, w.row(j));
      unexplained.add(sum, y.row(i)[static_cast<size_t>(j)]), differs = differs || sum != 0;
    }
  }
  return unexplained.relative_or(differs ? INFINITY : 0);
}

// Indices that differ by more than rounding; those far below the average count as a quarter of it.
std::vector<int64_t> differing(const std::vector<double>& squares, const std::vector<double>& norms, double tolerance) {
  double least = 0;
  for (const double norm : norms) least += 0.06 * norm / static_cast<double>(norms.size());
  std::vector<int64_t> out;
  for (size_t i = 0; i < squares.size(); ++i)
    if (squares[i] > 4 * tolerance * tolerance * std::max(norms[i], least)) out.push_back(static_cast<int64_t>(i));
  return out;
}

std::vector<int64_t> some_of(const std::vector<int64_t>& from, int64_t most) {
  std::vector<int64_t> out;
  for (const int64_t i : sample_indices(static_cast<int64_t>(from.size()), most))
    out.push_back(from[static_cast<size_t>(i)]);
  return out;
}

}  // namespace

LinearProbe::LinearProbe(Case& failing, const Item& input, const Values& weight, Format held_in)
    : failing_(failing), w_(weight), held_in_(held_in) {
  if (auto bias = failing.weight_r(failing.module + ".bias"); bias && bias->size() == w_.shape[0])
    bias_ = in_format(std::move(*bias), held_in).v;
  const Values &x_r = failing.reference_of(input), &x_c = failing.candidate_of(input);
  choose(x_c);
  x_r_ = take_rows(x_r, rows_), x_c_ = take_rows(x_c, rows_);
  y_r_ = take_rows(failing.r, rows_), y_c_ = take_rows(failing.c, rows_);
  with_reference_ = residual_of(x_c_, y_c_, w_, bias(), columns_);
}

void LinearProbe::choose(const Values& input) {
  const int64_t rows = failing_.r.rows(), outputs = w_.shape[0];
  std::vector<double> by_row(static_cast<size_t>(rows)), by_column(static_cast<size_t>(outputs)), row_norms(by_row),
      column_norms(by_column);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < outputs; ++j) {
      const size_t at_i = static_cast<size_t>(i), at_j = static_cast<size_t>(j);
      const double y = failing_.r.row(i)[at_j], d = failing_.c.row(i)[at_j] - y;
      by_row[at_i] += d * d, by_column[at_j] += d * d;
      row_norms[at_i] += y * y, column_norms[at_j] += y * y;
    }
  const std::vector<int64_t> bad_columns = differing(by_column, column_norms, failing_.tolerance);
  std::vector<int64_t> bad_rows;
  KnownRows known;
  for (const int64_t row : differing(by_row, row_norms, failing_.tolerance))
    if (known.is_new(input.row(row))) bad_rows.push_back(row);
  rows_ = some_of(bad_rows, kProbedRows), columns_ = some_of(bad_columns, kProbedColumns);
  if (bad_columns.empty() || bad_rows.empty())
    rows_ = sample_indices(rows, kProbedRows), columns_ = sample_indices(outputs, kProbedColumns);
  std::vector<bool> marked(static_cast<size_t>(outputs));
  for (const int64_t j : bad_columns) marked[static_cast<size_t>(j)] = true;
  if (static_cast<int64_t>(bad_columns.size()) < outputs && !bad_columns.empty())
    region_ = fmt::format(" ({})", index_set_words("output channel", marked));
  if (region_ == " ()") region_.clear();
}

bool LinearProbe::explains_reference(double& residual) const {
  residual = residual_of(x_r_, y_r_, w_, bias(), columns_);
  return failing_.explains(residual);
}

double LinearProbe::candidate(const Values& w, const std::vector<float>* b) const {
  return w.shape == w_.shape ? residual_of(x_c_, y_c_, w, b, columns_) : INFINITY;
}

double LinearProbe::of_rows(const Values& rows, const std::vector<float>* b, bool quick) const {
  Residual unexplained;
  for (int64_t i = 0; i < x_c_.rows(); i += quick ? std::max<int64_t>(1, x_c_.rows() / 6) : 1)
    for (size_t k = 0; k < static_cast<size_t>(rows.rows()); ++k) {
      const size_t j = static_cast<size_t>(columns_[k]);
      const auto weights = rows.row(static_cast<int64_t>(k));
      const double sum = (b ? (*b)[j] : 0) + dot(x_c_.row(i), weights);
      const double target = y_c_.row(i)[j];
      unexplained.add(sum, target);
    }
  return unexplained.relative();
}

double LinearProbe::candidate_with_input(const Values& x, bool quick) const {
  if (!quick) return residual_of(x, y_c_, w_, bias(), columns_);
  std::vector<int64_t> few = columns_;
  if (few.size() > 8) few.resize(8);
  return residual_of(take_rows(x, sample_indices(x.rows(), 3)), take_rows(y_c_, sample_indices(x.rows(), 3)), w_,
                     bias(), few);
}

double LinearProbe::candidate_in(Format input, Format weight, Format bias) const {
  const Values x = in_format(x_c_, input), rows = in_format(take_rows(w_, columns_), weight);
  Residual unexplained;
  for (int64_t i = 0; i < x.rows(); ++i)
    for (size_t k = 0; k < columns_.size(); ++k) {
      const size_t j = static_cast<size_t>(columns_[k]);
      const auto weights = rows.row(static_cast<int64_t>(k));
      const double sum = (bias_.empty() ? 0 : in_format(static_cast<double>(bias_[j]), bias)) + dot(x.row(i), weights);
      const double target = y_c_.row(i)[j];
      unexplained.add(sum, target);
    }
  return unexplained.relative();
}

bool LinearProbe::good(double residual) const {
  return failing_.explains_candidate(residual) && failing_.is_better(residual, with_reference_);
}

Values LinearProbe::without_bias(const std::vector<int64_t>& columns) const {
  const int64_t n = static_cast<int64_t>(columns.size());
  Values out = make_values({x_c_.rows(), n});
  for (int64_t i = 0; i < x_c_.rows(); ++i)
    for (int64_t k = 0; k < n; ++k) {
      const size_t j = static_cast<size_t>(columns[static_cast<size_t>(k)]);
      out.row(i)[static_cast<size_t>(k)] = y_c_.row(i)[j] - (bias_.empty() ? 0 : bias_[j]);
    }
  return out;
}

Values LinearProbe::product(const std::vector<int64_t>& columns) const {
  const Values& x = x_c_;
  const int64_t n = static_cast<int64_t>(columns.size());
  Values out = make_values({x.rows(), n});
  for (int64_t i = 0; i < x.rows(); ++i)
    for (int64_t k = 0; k < n; ++k) {
      out.row(i)[static_cast<size_t>(k)] = static_cast<float>(dot(x.row(i), w_.row(columns[static_cast<size_t>(k)])));
    }
  return out;
}

std::vector<float> LinearProbe::own_bias() const {
  const Values right = product();
  std::vector<float> out(static_cast<size_t>(w_.shape[0]));
  for (size_t k = 0; k < columns_.size(); ++k) {
    const size_t j = static_cast<size_t>(columns_[k]);
    double sum = 0;
    for (int64_t i = 0; i < x_c_.rows(); ++i) sum += static_cast<double>(y_c_.row(i)[j]) - right.row(i)[k];
    out[j] = static_cast<float>(sum / static_cast<double>(x_c_.rows()));
  }
  return out;
}

double linear_misfit(const Values& x, const Values& y, const Values& w, const std::vector<float>& bias,
                     const std::vector<int64_t>& columns) {
  Residual unexplained;
  for (int64_t i = 0; i < x.rows(); ++i)
    for (const int64_t j : columns) {
      const double sum = bias[static_cast<size_t>(j)] + dot(x.row(i), w.row(j));
      const double target = y.row(i)[static_cast<size_t>(j)];
      unexplained.add(sum, target);
    }
  return unexplained.relative();
}

}  // namespace lockstep
