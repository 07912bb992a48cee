// Cholesky for the normal equations of a fit.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

// Solves A x = b in place (x replaces b); A is n*n, symmetric, destroyed. False when A is singular to working
// precision.
bool solve_symmetric(std::vector<double>& a, std::vector<double>& b, size_t n, size_t right_hand_sides = 1);

// A fit of many unknowns by its normal equations, one row of the basis at a time; what is nearly singular is held by a
// little of the diagonal.
class NormalEquations {
 public:
  explicit NormalEquations(size_t unknowns) : n_(unknowns), gram_(unknowns * unknowns), right_(unknowns) {}
  void add(std::span<const double> row, double y);
  std::optional<std::vector<double>> solve();  // once

 private:
  size_t n_;
  std::vector<double> gram_, right_;  // of the symmetric matrix the lower half
};

}  // namespace lockstep
