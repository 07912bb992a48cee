// Shapes and strides. Strides count elements, not bytes.
#pragma once
#include <cstdint>
#include <string>

#include "tensor/dims.h"

namespace lockstep {

using Shape = Dims;
using Strides = Dims;
inline constexpr size_t kMaxRank = 64;

int64_t checked_numel(const Shape& shape);       // refuses negative sizes, too many axes and products beyond 2^62
Strides contiguous_strides(const Shape& shape);  // row major
std::string to_string(const Shape& shape);       // "[1, 24, 128]"
Shape without_ones(Shape shape);                 // axes of one element left out
Shape broadcast_shapes(const Shape& a, const Shape& b);        // NumPy's rule
Shape resolve_reshape(const Shape& requested, int64_t numel);  // one -1 allowed

}  // namespace lockstep
