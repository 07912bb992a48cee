// Element access by index for naive kernels: any dtype in, f64 out, rounded once on the way back.
#pragma once
#include <initializer_list>
#include <vector>

#include "tensor/convert.h"
#include "tensor/tensor.h"

namespace lockstep::reference {

inline int64_t offset_of(const Tensor& tensor, std::initializer_list<int64_t> index) {
  int64_t offset = 0;
  size_t axis = 0;
  for (const int64_t i : index) offset += i * tensor.strides()[axis++];
  return offset;
}

inline double load_at(const Tensor& tensor, int64_t offset) {
  return element_as_double(tensor.strided_data() + offset * static_cast<int64_t>(dtype_bytes(tensor.dtype())),
                           tensor.dtype());
}

inline double load(const Tensor& tensor, std::initializer_list<int64_t> index) {
  return load_at(tensor, offset_of(tensor, index));
}

inline void store_at(Tensor& tensor, int64_t offset, double value) {
  convert_elements(&value, DType::kF64,
                   tensor.mutable_strided_data() + offset * static_cast<int64_t>(dtype_bytes(tensor.dtype())),
                   tensor.dtype(), 1);
}

inline void store(Tensor& tensor, std::initializer_list<int64_t> index, double value) {
  store_at(tensor, offset_of(tensor, index), value);
}

// The value after a round trip through the tensor's dtype: where torch rounds an intermediate, so do we.
inline double rounded_to(DType dtype, double value) {
  double stored = 0;
  std::byte bytes[8];
  convert_elements(&value, DType::kF64, bytes, dtype, 1);
  convert_elements(bytes, dtype, &stored, DType::kF64, 1);
  return stored;
}

// Offsets of the first element of every row (all axes but the last), in row-major order.
inline std::vector<int64_t> row_offsets(const Tensor& tensor) {
  std::vector<int64_t> offsets{0};
  for (size_t axis = 0; axis + 1 < tensor.rank(); ++axis) {
    std::vector<int64_t> next;
    next.reserve(offsets.size() * static_cast<size_t>(tensor.shape()[axis]));
    for (const int64_t base : offsets)
      for (int64_t i = 0; i < tensor.shape()[axis]; ++i) next.push_back(base + i * tensor.strides()[axis]);
    offsets = std::move(next);
  }
  return offsets;
}

}  // namespace lockstep::reference
