#include "measure/small_solve.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

bool solve_symmetric(std::vector<double>& a, std::vector<double>& b, size_t n, size_t right_hand_sides) {
  double largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, a[i * n + i]);
  if (!(largest > 0)) return false;
  for (size_t j = 0; j < n; ++j) {  // a = L L^T, L in the lower triangle
    double d = a[j * n + j];
    for (size_t k = 0; k < j; ++k) d -= a[j * n + k] * a[j * n + k];
    if (!(d > largest * 1e-13)) return false;
    const double pivot = std::sqrt(d);
    a[j * n + j] = pivot;
    for (size_t i = j + 1; i < n; ++i) {
      double sum = a[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      a[i * n + j] = sum / pivot;
    }
  }
  for (size_t r = 0; r < right_hand_sides; ++r) {  // b is [n, right_hand_sides]
    for (size_t i = 0; i < n; ++i) {
      double sum = b[i * right_hand_sides + r];
      for (size_t k = 0; k < i; ++k) sum -= a[i * n + k] * b[k * right_hand_sides + r];
      b[i * right_hand_sides + r] = sum / a[i * n + i];
    }
    for (size_t i = n; i-- > 0;) {
      double sum = b[i * right_hand_sides + r];
      for (size_t k = i + 1; k < n; ++k) sum -= a[k * n + i] * b[k * right_hand_sides + r];
      b[i * right_hand_sides + r] = sum / a[i * n + i];
    }
  }
  return true;
}

void NormalEquations::add(std::span<const double> row, double y) {
  for (size_t a = 0; a < n_; ++a) {
    right_[a] += row[a] * y;
    for (size_t b = 0; b <= a; ++b) gram_[a * n_ + b] += row[a] * row[b];
  }
}

std::optional<std::vector<double>> NormalEquations::solve() {
  double trace = 0;
  for (size_t a = 0; a < n_; ++a) trace += gram_[a * n_ + a];
  for (size_t a = 0; a < n_; ++a) gram_[a * n_ + a] += 1e-12 * trace / static_cast<double>(n_);
  if (!solve_symmetric(gram_, right_, n_)) return std::nullopt;  // it reads the lower half alone
  return std::move(right_);
}

}  // namespace lockstep
