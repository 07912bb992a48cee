// A tensor's values as text: NumPy's look, and never more than a screen. Long axes show their edges.
#pragma once
#include <string>

#include "base/text.h"
#include "tensor/tensor.h"

namespace lockstep {

struct TensorTextOptions {
  int rows = 40;      // most lines of values
  int columns = 100;  // widest line
  int digits = 6;     // significant
};

Text text_from_tensor(const Tensor& tensor, const TensorTextOptions& options);

// One value: exact for integers and bool.
std::string text_from_element(const std::byte* at, DType dtype, int digits);

}  // namespace lockstep
