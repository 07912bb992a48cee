// Layer: tensor
// Fuzzes NumPy-like slices as people type them: a view inside the tensor, or an Error.
#include <string_view>

#include "fuzz_input.h"
#include "tensor/index_expression.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const Tensor tensor = Tensor::zeros(DType::kF32, {5, 3, 4, 2});
    touch(apply_slice(tensor, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}).contiguous());
  });
}
