// DLPack: tensors handed between libraries without a copy. The structs are the specification's binary interface (1.1
// and the older unversioned one); the two functions a direction are ours.
#pragma once
#include <cstdint>

#include "tensor/tensor.h"

extern "C" {

enum { kDLCPU = 1, kDLCUDAHost = 3 };

enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6, kDLFloat8_e4m3fn = 10, kDLFloat8_e5m2 = 12 };

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};

struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: C order
  uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};

}  // extern "C"

namespace lockstep {

inline constexpr uint64_t kDLPackReadOnly = 1;  // flag bit: the consumer must not write

// A view of foreign memory on the CPU. On success the tensor owns `managed` and calls its deleter with the last view;
// on an error the caller still owns it.
Tensor tensor_from_dlpack(DLManagedTensor* managed);
Tensor tensor_from_dlpack(DLManagedTensorVersioned* managed);

// The tensor's storage lives until the consumer calls the deleter. Mapped files cannot be written to: say `read_only`.
DLManagedTensor* dlpack_from_tensor(const Tensor& tensor);
DLManagedTensorVersioned* versioned_dlpack_from_tensor(const Tensor& tensor, bool read_only);

}  // namespace lockstep
