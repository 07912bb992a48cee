// A value's elements as floats in row-major order, and what survives any rearrangement of them.
#pragma once
#include <memory>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep::zoom {

struct Numbers {
  Shape shape;
  std::vector<float> values;
  int64_t count() const { return static_cast<int64_t>(values.size()); }
};

// Sums over the finite elements: the same for every layout of the same elements.
struct Totals {
  int64_t count = 0, infinite = 0, nan = 0;
  double sum = 0, absolute = 0, squares = 0;
  bool uniform = false;  // all elements alike
  bool binary = false;   // nothing but 0 and 1
};

Totals totals_of(const Numbers& numbers);

// Whether two values may hold the same elements at a relative error of `tolerance`. Never wrong when it says no.
bool may_agree(const Totals& a, const Totals& b, double tolerance);

// ||a - b|| / ||b|| over equal counts in row-major order. Elements beyond 1e8 times the typical size (masks) must agree
// in place and sign and do not count otherwise. 1 or more where they do not.
double relative_distance(const float* a, const float* b, int64_t count);

}  // namespace lockstep::zoom
