#include "io/mapped_tensor.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace lockstep {

Tensor tensor_from_bytes(std::span<const std::byte> bytes, DType dtype, const Shape& shape,
                         std::shared_ptr<const void> owner) {
  const int64_t numel = checked_numel(shape);
  if (static_cast<uint64_t>(numel) > bytes.size() || static_cast<size_t>(numel) * dtype_bytes(dtype) != bytes.size())
    fail(Code::kInternal, "tensor", "bytes do not match the shape " + to_string(shape),
         {.expected = std::to_string(numel) + " elements", .got = std::to_string(bytes.size()) + " bytes"});
  const bool odd_bool =
      dtype == DType::kBool && std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % dtype_bytes(dtype) == 0;
  if (!bytes.empty() && aligned && !odd_bool) return Tensor::wrap(bytes.data(), dtype, shape, std::move(owner));
  Tensor copy = Tensor::empty(dtype, shape);
  std::byte* out = copy.mutable_strided_data();
  if (odd_bool)
    std::transform(bytes.begin(), bytes.end(), out,
                   [](std::byte b) { return b == std::byte{0} ? std::byte{0} : std::byte{1}; });
  else if (!bytes.empty())
    std::memcpy(out, bytes.data(), bytes.size());
  return copy;
}

}  // namespace lockstep
