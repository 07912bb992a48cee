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

int64_t numel_in_file(const Shape& shape, DType dtype, std::string_view operation, std::string_view origin) {
  constexpr int64_t kMostBytes = int64_t{1} << 62;
  constexpr std::string_view kWhat = " has more elements than memory can hold";
  const Detail detail{.expected = "at most 2^62 bytes"};
  int64_t numel = 0;
  try {
    numel = checked_numel(shape);
  } catch (const Error&) {  // knows the shape, but not whose it is
    fail(Code::kCorrupt, operation, std::string(origin) + ": " + to_string(shape) + std::string(kWhat), detail);
  }
  if (numel > kMostBytes / static_cast<int64_t>(dtype_bytes(dtype)))
    fail(Code::kCorrupt, operation, std::string(origin) + ": " + to_string(shape) + std::string(kWhat), detail);
  return numel;
}

void check_complex(DType dtype, const Shape& shape, std::string_view operation) {
  if ((dtype == DType::kF32 || dtype == DType::kF64) && !shape.empty() && shape.back() == 2) return;
  fail(
      Code::kBadInput, operation, "no complex numbers to write",
      {.expected = "f32 or f64 with a last axis of 2", .got = std::string(dtype_name(dtype)) + " " + to_string(shape)});
}

}  // namespace lockstep
