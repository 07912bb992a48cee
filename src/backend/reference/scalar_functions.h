// Activations in f64, by their definitions.
#pragma once
#include <cmath>
#include <numbers>

#include "backend/kernels.h"

namespace lockstep::reference {

inline double silu(double x) {
  return x / (1 + std::exp(-x));
}
inline double gelu_erf(double x) {
  return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
}
inline double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

inline double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kGeluTanh:
      return gelu_tanh(x);
    case Activation::kGeluErf:
      return gelu_erf(x);
    case Activation::kSilu:
      return silu(x);
  }
  return x;
}

}  // namespace lockstep::reference
