// The one table of tolerances between a backend and the reference, derived from the dtype of the result and the length
// of the sums behind each element. The reference sums in f64 and rounds once; a backend sums in f32.
#pragma once
#include <cmath>
#include <cstdint>

#include "tensor/dtype.h"

namespace lockstep::testing {

enum class Operands {
  kAsStored,  // the products' operands are exactly the tensors' values
  kRounded,   // a backend may round an intermediate operand to the activations' dtype: attention's weights, dequantised
              // weights
};

struct Tolerance {
  double relative_l2;  // |got - expected| / |expected| over the whole tensor; not asked of fewer than 16 elements
  double element;      // |got - expected| for each element, in units of (|expected| + root mean square of expected)
};

// `amplification`: how much larger than its result the operands of a cancelling difference are, or the largest exponent
// of an exponential, whose relative error is that much absolute error of its operand.
inline Tolerance tolerance(DType dtype, int64_t reduction, Operands operands = Operands::kAsStored,
                           double amplification = 0) {
  constexpr double kF32 = 0x1p-24;
  // A sum of K terms in f32 rounds K times, each time by a random part of the running sum, which itself grows like
  // sqrt(i): together sqrt(K / 6) roundings of the result. Four more for what stands before and after the sum.
  const double sum = kF32 * (4 + std::sqrt(static_cast<double>(reduction) / 6) + amplification);
  const double stored = dtype == DType::kF32 ? 0 : unit_roundoff(dtype);
  const double operand = operands == Operands::kRounded && dtype == DType::kBF16 ? unit_roundoff(dtype) : 0;
  // Two values that differ by `sum` may round to neighbours.
  const double relative = sum + stored + operand;
  return {relative, 8 * sum + 2 * stored + 6 * operand};
}

}  // namespace lockstep::testing
