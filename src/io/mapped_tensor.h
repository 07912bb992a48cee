// One tensor out of a range of file bytes: the single place that decides between a view and a copy.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "tensor/tensor.h"

namespace lockstep {

// `bytes` must hold exactly the elements of `shape`, little endian, C order. A view that keeps `owner` alive; copied
// when the bytes are misaligned, when there are none, or when a bool is stored as something other than 0 or 1 (reading
// such a byte as a C++ bool is undefined, and every reader of bool tensors would have to know).
Tensor tensor_from_bytes(std::span<const std::byte> bytes, DType dtype, const Shape& shape,
                         std::shared_ptr<const void> owner);

// How many elements a shape that a file claims has; refused in the file's name when they or their bytes pass 2^62.
int64_t numel_in_file(const Shape& shape, DType dtype, std::string_view operation, std::string_view origin);

// Error{kBadInput} unless [..., 2] numbers of this dtype can be written as complex ones.
void check_complex(DType dtype, const Shape& shape, std::string_view operation);

}  // namespace lockstep
