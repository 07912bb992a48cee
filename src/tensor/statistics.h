// The numbers that describe one tensor, from one streaming, threaded pass over any dtype and strides.
#pragma once
#include <cstdint>

#include "tensor/statistics_kernel.h"
#include "tensor/tensor.h"

namespace lockstep {

// NaN and infinities are counted and otherwise left out: min, max, mean, std, rms and absmax are of the finite values,
// and NaN where there is none. std divides by n, as NumPy's. Results do not depend on the number of threads.
struct Statistics {
  int64_t count = 0;  // all elements
  double min, max, mean, std, rms, absmax;
  int64_t nan = 0, inf = 0, zero = 0, denormal = 0;

  int64_t finite() const { return count - nan - inf; }
};

Statistics tensor_statistics(const Tensor& tensor);

// Finite values seen so far, in a form in which two parts can be joined without losing digits (Chan, Golub, LeVeque).
struct Moments {
  int64_t finite = 0;
  double mean = 0, m2 = 0;  // m2: sum of squared distances from the mean
  double min, max;
  int64_t nan = 0, inf = 0, zero = 0, denormal = 0;

  Moments();
  void add(double value, double smallest_normal);
  void merge(const Moments& other);
  Statistics statistics() const;
  static Moments of_block(const BlockMoments& block, int64_t count);
};

double smallest_normal(DType dtype);  // values below are denormal; 0 for integers

}  // namespace lockstep
