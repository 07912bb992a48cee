#include "backend/check_storage.h"

#include <cstdint>
#include <string>

#include "base/error.h"
#include "tensor/storage.h"

namespace lockstep {

void check_storage(const char* operation, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors) {
    if (!tensor) continue;
    if (!tensor->defined()) fail(Code::kBadInput, operation, "a tensor without storage");
    if (!tensor->on_host())
      fail(Code::kInternal, operation, "a tensor of another device",
           {.expected = "host memory", .got = tensor->storage()->place(), .hint = "host(), or upload() to the other"});
    if (reinterpret_cast<uintptr_t>(tensor->strided_data()) % dtype_bytes(tensor->dtype()) != 0)
      fail(Code::kBadInput, operation, "misaligned storage",
           {.expected = "a multiple of " + std::to_string(dtype_bytes(tensor->dtype())) + " bytes"});
  }
}

}  // namespace lockstep
