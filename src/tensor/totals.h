// Sums that are the same for every layout of the same elements: a fingerprint by which values of two programs find each
// other before their elements are compared.
#pragma once
#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace lockstep {

// The sums are over the finite elements.
struct Totals {
  int64_t count = 0, infinite = 0, nan = 0;
  double sum = 0, absolute = 0, squares = 0;
  bool uniform = false;  // all elements alike
  bool binary = false;   // nothing but 0 and 1
};

Totals totals_of(std::span<const float> values);
Totals totals_of(const Tensor& tensor);  // of any dtype and strides, as floats; threaded, the same digits always

// Whether two values may hold the same elements at a relative error of `tolerance`. Never wrong when it says no.
bool may_agree(const Totals& a, const Totals& b, double tolerance);

}  // namespace lockstep
