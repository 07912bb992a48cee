// Are these two tensors the same thing in two forms? Decided by content, and always said.
#pragma once
#include <string>
#include <string_view>

#include "tensor/tensor.h"

namespace lockstep {

struct Alignment {
  bool comparable = true;
  Tensor candidate;   // in the reference's shape
  std::string words;  // empty: the shapes were equal
};

Alignment align(std::string_view name, const Tensor& candidate, const Tensor& reference, double tolerance);

}  // namespace lockstep
