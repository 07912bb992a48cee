// Cholesky for the normal equations of a fit.
#pragma once
#include <cstddef>
#include <vector>

namespace lockstep {

// Solves A x = b in place (x replaces b); A is n*n, symmetric, destroyed. False when A is singular to working
// precision.
bool solve_symmetric(std::vector<double>& a, std::vector<double>& b, size_t n, size_t right_hand_sides = 1);

}  // namespace lockstep
