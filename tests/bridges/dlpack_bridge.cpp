// Our side of tests/python/test_dlpack.py: tensors exported to, and imported from, whatever library is on the other
// side.
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "tensor/convert.h"
#include "tensor/dlpack.h"

namespace {

using namespace lockstep;

int released = 0;
std::string problem;

// 0, 1, 2, ... in the dtype, in memory whose release is counted.
Tensor counted_range(DType dtype, const Shape& shape) {
  Tensor values = Tensor::zeros(DType::kF32, shape);
  for (int64_t i = 0; i < values.numel(); ++i) values.mutable_data<float>()[i] = static_cast<float>(i);
  const auto keep = std::make_shared<const Tensor>(values.to(dtype).contiguous());
  const std::shared_ptr<const void> owner(keep.get(), [keep](const void*) { ++released; });
  return Tensor::wrap(keep->strided_data(), dtype, shape, owner);
}

Tensor exported_view(DType dtype, const std::string& kind) {
  if (kind == "scalar") return counted_range(dtype, {2}).select(0, 1);  // 0-d, not at the start of its storage
  if (kind == "empty") return counted_range(dtype, {3, 0, 2});
  const Tensor whole = counted_range(dtype, {2, 3, 4});
  if (kind == "whole") return whole;
  if (kind == "transposed") return whole.transpose(0, 2);
  if (kind == "sliced") return whole.slice(1, 1, 3).slice(2, 1, 4, 2);  // offset and steps
  if (kind == "broadcast") return whole.slice(0, 1, 2).broadcast_to({5, 3, 4});
  fail(Code::kInternal, "bridge", "no such view: " + kind);
}

template <typename Work>
auto guarded(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const Error& error) {
    problem = error.what();
    return {};
  }
}

}  // namespace

extern "C" {

void* bridge_export(const char* dtype, const char* kind, int versioned) {
  return guarded([&]() -> void* {
    const Tensor view = exported_view(*dtype_from_name(dtype), kind);
    if (versioned) return versioned_dlpack_from_tensor(view, false);
    return dlpack_from_tensor(view);
  });
}

int bridge_released() {
  return released;
}

// On an error null: the caller still owns `managed`, and bridge_problem() says why.
void* bridge_import(void* managed, int versioned) {
  return guarded([&]() -> void* {
    return new Tensor(versioned ? tensor_from_dlpack(static_cast<DLManagedTensorVersioned*>(managed))
                                : tensor_from_dlpack(static_cast<DLManagedTensor*>(managed)));
  });
}

const char* bridge_problem() {
  return problem.c_str();
}

const char* bridge_dtype(const void* tensor) {
  return dtype_name(static_cast<const Tensor*>(tensor)->dtype()).data();
}

int bridge_rank(const void* tensor) {
  return static_cast<int>(static_cast<const Tensor*>(tensor)->rank());
}

int64_t bridge_dim(const void* tensor, int axis) {
  return static_cast<const Tensor*>(tensor)->dim(axis);
}

// In row-major order, whatever the strides.
void bridge_values(const void* tensor, double* out) {
  const Tensor wide = static_cast<const Tensor*>(tensor)->to(DType::kF64).contiguous();
  for (int64_t i = 0; i < wide.numel(); ++i) out[i] = wide.data<double>()[i];
}

void bridge_drop(void* tensor) {
  delete static_cast<Tensor*>(tensor);
}
}
