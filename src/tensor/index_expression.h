// NumPy-like slices as people type them: "[0, :, -1, ::2]", "[..., 5:10]", "3". The result is a view.
#pragma once
#include <string_view>

#include "tensor/tensor.h"

namespace lockstep {

// Integers drop their axis and may be negative; begin:end:step clamps as NumPy does, negative steps included; `...`
// stands for all axes in between; missing axes at the end are taken whole. Error{kUsage} says which part is wrong.
Tensor apply_slice(const Tensor& tensor, std::string_view expression);

}  // namespace lockstep
