// A value's elements as floats in row-major order, and what survives any rearrangement of them.
#pragma once
#include <memory>
#include <vector>

#include "tensor/tensor.h"
#include "tensor/totals.h"

namespace lockstep::zoom {

struct Numbers {
  Shape shape;
  std::vector<float> values;
  int64_t count() const { return static_cast<int64_t>(values.size()); }
};

Totals totals_of(const Numbers& numbers);

// ||a - b|| / ||b|| over equal counts in row-major order. Elements beyond 1e8 times the typical size (masks) must agree
// in place and sign and do not count otherwise. 1 or more where they do not.
double relative_distance(const float* a, const float* b, int64_t count);

}  // namespace lockstep::zoom
