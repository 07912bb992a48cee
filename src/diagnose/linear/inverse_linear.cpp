#include "diagnose/linear/inverse_linear.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr int64_t kMostNormal = 768;  // beyond, K^3 in double takes longer than a person waits
constexpr int64_t kMostSquare = 4096;
constexpr int64_t kBlock = 64;

}  // namespace

InverseLinear::InverseLinear(const std::vector<const Values*>& weights) : weights_(weights) {
  if (weights_.empty()) return;
  k_ = weights_[0]->last();
  int64_t outputs = 0;
  for (const Values* weight : weights_) outputs += weight->rows();
  square_ = k_ > kMostNormal;
  if (square_ ? weights_[0]->rows() < k_ || k_ > kMostSquare : outputs < k_) return;
  if (square_) weights_.resize(1);
  square_ ? factor_square() : factor_normal_equations();
}

void InverseLinear::factor_normal_equations() {
  const size_t n = static_cast<size_t>(k_);
  normal_.assign(n * n, 0);
#pragma omp parallel for schedule(dynamic, 8)
  for (size_t i = 0; i < n; ++i)
    for (const Values* weight : weights_)
      for (int64_t row = 0; row < weight->rows(); ++row) {
        const std::span<const float> w = weight->row(row);
        const double by = w[i];
        for (size_t j = 0; j <= i; ++j) normal_[i * n + j] += by * w[j];
      }
  double largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, normal_[i * n + i]);
  for (size_t j = 0; j < n; ++j) {
    double* own = &normal_[j * n];
    double pivot = own[j];
    for (size_t k = 0; k < j; ++k) pivot -= own[k] * own[k];
    if (!(pivot > largest * 1e-12)) return;
    own[j] = std::sqrt(pivot);
    for (size_t i = j + 1; i < n; ++i) {
      double sum = normal_[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= normal_[i * n + k] * own[k];
      normal_[i * n + j] = sum / own[j];
    }
  }
  usable_ = true;
}

// Rows in pivoted order, blocks of columns: within a block by hand, what lies right of it a row at a time.
void InverseLinear::factor_square() {
  const int64_t n = k_, all = weights_[0]->rows();
  lu_.resize(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) {
    rows_.push_back(i * all / n);
    std::copy_n(weights_[0]->row(rows_.back()).begin(), n, lu_.begin() + i * n);
  }
  const auto at = [&](int64_t i, int64_t j) -> float& { return lu_[static_cast<size_t>(i * n + j)]; };
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t last = std::min(first + kBlock, n);
    for (int64_t k = first; k < last; ++k) {
      int64_t best = k;
      for (int64_t i = k + 1; i < n; ++i)
        if (std::fabs(at(i, k)) > std::fabs(at(best, k))) best = i;
      if (!(std::fabs(at(best, k)) > 0)) return;
      if (best != k) {
        std::swap_ranges(lu_.begin() + k * n, lu_.begin() + (k + 1) * n, lu_.begin() + best * n);
        std::swap(rows_[static_cast<size_t>(k)], rows_[static_cast<size_t>(best)]);
      }
      for (int64_t i = k + 1; i < n; ++i) {
        const float factor = at(i, k) /= at(k, k);
        for (int64_t j = k + 1; j < last; ++j) at(i, j) -= factor * at(k, j);
      }
    }
    for (int64_t k = first; k < last; ++k)
      for (int64_t i = k + 1; i < last; ++i)
        for (int64_t j = last; j < n; ++j) at(i, j) -= at(i, k) * at(k, j);
#pragma omp parallel for
    for (int64_t i = last; i < n; ++i)
      for (int64_t k = first; k < last; ++k) {
        const float factor = at(i, k);
        for (int64_t j = last; j < n; ++j) at(i, j) -= factor * at(k, j);
      }
  }
  usable_ = true;
}

Values InverseLinear::input_of(const std::vector<const Values*>& outputs) const {
  const int64_t rows = outputs[0]->rows();
  Values x = make_values({rows, k_});
  const size_t n = static_cast<size_t>(k_);
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> y(n, 0);
    if (square_) {
      for (size_t i = 0; i < n; ++i) y[i] = outputs[0]->row(row)[static_cast<size_t>(rows_[i])];
      for (size_t i = 0; i < n; ++i)
        for (size_t k = 0; k < i; ++k) y[i] -= lu_[i * n + k] * y[k];
      for (size_t i = n; i-- > 0;) {
        for (size_t k = i + 1; k < n; ++k) y[i] -= lu_[i * n + k] * y[k];
        y[i] /= lu_[i * n + i];
      }
    } else {
      for (size_t w = 0; w < weights_.size(); ++w)
        for (int64_t i = 0; i < weights_[w]->rows(); ++i) {
          const double by = outputs[w]->row(row)[static_cast<size_t>(i)];
          const std::span<const float> line = weights_[w]->row(i);
          for (size_t k = 0; k < n; ++k) y[k] += by * line[k];
        }
      for (size_t i = 0; i < n; ++i) {
        for (size_t k = 0; k < i; ++k) y[i] -= normal_[i * n + k] * y[k];
        y[i] /= normal_[i * n + i];
      }
      for (size_t i = n; i-- > 0;) {
        y[i] /= normal_[i * n + i];
        for (size_t k = 0; k < i; ++k) y[k] -= normal_[i * n + k] * y[i];
      }
    }
    std::copy(y.begin(), y.end(), x.row(row).begin());
  }
  return x;
}

}  // namespace lockstep
