// Element conversion and strided copies: the only two places that turn one layout or dtype into another.
#pragma once
#include "tensor/tensor.h"

namespace lockstep {

// `count` contiguous elements. Floats round to nearest even; float to integer truncates and saturates, NaN becomes 0;
// to bool is "not zero".
void convert_elements(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count);

// Copies values between equal shapes and dtypes with any strides.
void copy_strided(const Tensor& from, Tensor& to);

// One element as a double (exact for all but 64-bit integers), for code where clarity matters more than speed.
double element_as_double(const std::byte* at, DType dtype);

// All elements in row-major order as f32 or f64, whatever dtype and strides.
std::vector<float> to_floats(const Tensor& tensor);
std::vector<double> to_doubles(const Tensor& tensor);

}  // namespace lockstep
