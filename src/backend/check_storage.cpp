#include "backend/check_storage.h"

#include <cstdint>
#include <string>

#include "base/error.h"

namespace lockstep {

void check_storage(const char* operation, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors) {
    if (!tensor) continue;
    if (!tensor->defined()) fail(Code::kBadInput, operation, "a tensor without storage");
    if (reinterpret_cast<uintptr_t>(tensor->strided_data()) % dtype_bytes(tensor->dtype()) != 0)
      fail(Code::kBadInput, operation, "misaligned storage",
           {.expected = "a multiple of " + std::to_string(dtype_bytes(tensor->dtype())) + " bytes"});
  }
}

}  // namespace lockstep
