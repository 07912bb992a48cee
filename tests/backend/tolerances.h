// The one table of tolerances between a backend and the reference, derived from the dtype of the result and the length of
// the sums behind each element. The reference sums in f64 and rounds once; a backend sums in f32.
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
  double relative_l2;  // |got - expected| / |expected| over the whole tensor
  double element;      // |got - expected| for each element, in units of (|expected| + root mean square of expected)
};

inline Tolerance tolerance(DType dtype, int64_t reduction, Operands operands = Operands::kAsStored) {
  constexpr double kF32 = 0x1p-24;
  // Rounding errors of a blocked f32 sum grow like a random walk over the blocks, an eighth of one over the terms.
  const double sum = kF32 * (4 + std::sqrt(static_cast<double>(reduction)) / 8);
  const double stored = dtype == DType::kF32 ? 0 : unit_roundoff(dtype);
  const double operand = operands == Operands::kRounded && dtype == DType::kBF16 ? unit_roundoff(dtype) : 0;
  // Two values that differ by `sum` may round to neighbours; that is seldom, so a quarter of a rounding step on average.
  const double relative = sum + stored / 4 + operand;
  return {relative, 8 * sum + 2 * stored + 6 * operand};
}

}  // namespace lockstep::testing
