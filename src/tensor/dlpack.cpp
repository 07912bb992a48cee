#include "tensor/dlpack.h"

#include <string>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr uint32_t kVersionMajor = 1, kVersionMinor = 1;

struct Pairing {
  DType dtype;
  uint8_t code, bits;
};
constexpr Pairing kPairings[] = {
    {DType::kF64, kDLFloat, 64},
    {DType::kF32, kDLFloat, 32},
    {DType::kF16, kDLFloat, 16},
    {DType::kBF16, kDLBfloat, 16},
    {DType::kF8E4M3, kDLFloat8_e4m3fn, 8},
    {DType::kF8E5M2, kDLFloat8_e5m2, 8},
    {DType::kI8, kDLInt, 8},
    {DType::kI16, kDLInt, 16},
    {DType::kI32, kDLInt, 32},
    {DType::kI64, kDLInt, 64},
    {DType::kU8, kDLUInt, 8},
    {DType::kU16, kDLUInt, 16},
    {DType::kU32, kDLUInt, 32},
    {DType::kU64, kDLUInt, 64},
    {DType::kBool, kDLBool, 8},
};

DType dtype_from_dlpack(DLDataType type) {
  for (const Pairing& pairing : kPairings)
    if (type.lanes == 1 && type.code == pairing.code && type.bits == pairing.bits) return pairing.dtype;
  fail(Code::kUnsupported, "dlpack", "an element type we do not hold",
       {.got = "code " + std::to_string(type.code) + ", " + std::to_string(type.bits) + " bits, " +
               std::to_string(type.lanes) + " lanes"});
}

DLDataType dlpack_from_dtype(DType dtype) {
  const Pairing& pairing = kPairings[static_cast<size_t>(dtype)];
  return {pairing.code, pairing.bits, 1};
}

template <typename Managed>
Tensor import_managed(Managed* managed) {
  if (!managed) fail(Code::kBadInput, "dlpack", "no tensor");
  const DLTensor& foreign = managed->dl_tensor;
  if (foreign.device.device_type != kDLCPU && foreign.device.device_type != kDLCUDAHost)
    fail(Code::kUnsupported, "dlpack", "the tensor is on a device",
         {.expected = "CPU memory", .got = "device type " + std::to_string(foreign.device.device_type)});
  if (foreign.ndim < 0 || (foreign.ndim > 0 && !foreign.shape))
    fail(Code::kBadInput, "dlpack", "no shape", {.got = std::to_string(foreign.ndim) + " axes"});
  const size_t rank = static_cast<size_t>(foreign.ndim);
  if (rank > kMaxRank) fail(Code::kBadInput, "dlpack", "too many axes", {.got = std::to_string(rank)});
  const Shape shape(foreign.shape, foreign.shape + rank);
  const Strides strides = foreign.strides ? Strides(foreign.strides, foreign.strides + rank) : Strides{};
  const DType dtype = dtype_from_dlpack(foreign.dtype);
  if (checked_numel(shape) == 0) {  // its data pointer may be null
    Tensor empty = Tensor::empty(dtype, shape);
    if (managed->deleter) managed->deleter(managed);
    return empty;
  }
  if (!foreign.data) fail(Code::kBadInput, "dlpack", "null data in a tensor of shape " + to_string(shape));
  // Everything that can fail is checked by this first wrap, while the caller still owns `managed`.
  const std::byte* data = static_cast<const std::byte*>(foreign.data) + foreign.byte_offset;
  (void)Tensor::wrap(data, dtype, shape, nullptr, strides);
  std::shared_ptr<const void> owner(managed, [](Managed* m) {
    if (m->deleter) m->deleter(m);
  });
  return Tensor::wrap(data, dtype, shape, std::move(owner), strides);
}

// What an exported tensor keeps alive: the storage, and the arrays its shape and strides are read from.
template <typename Managed>
struct Exported {
  Tensor tensor;
  Shape shape;
  Strides strides;
  Managed managed{};
};

template <typename Managed>
Managed* export_managed(const Tensor& tensor) {
  if (!tensor.defined()) fail(Code::kBadInput, "dlpack", "no tensor");
  auto exported = std::make_unique<Exported<Managed>>();
  exported->tensor = tensor;
  exported->shape = tensor.shape();
  exported->strides = tensor.strides();
  DLTensor& view = exported->managed.dl_tensor;
  view.data = exported->tensor.mutable_strided_data();
  view.device = {kDLCPU, 0};
  view.ndim = static_cast<int32_t>(tensor.rank());
  view.dtype = dlpack_from_dtype(tensor.dtype());
  view.shape = exported->shape.data();
  view.strides = exported->strides.data();
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = [](Managed* self) { delete static_cast<Exported<Managed>*>(self->manager_ctx); };
  return &exported.release()->managed;
}

}  // namespace

Tensor tensor_from_dlpack(DLManagedTensor* managed) {
  return import_managed(managed);
}

Tensor tensor_from_dlpack(DLManagedTensorVersioned* managed) {
  if (managed && managed->version.major != kVersionMajor)
    fail(Code::kUnsupported, "dlpack", "another major version",
         {.expected = std::to_string(kVersionMajor), .got = std::to_string(managed->version.major)});
  return import_managed(managed);
}

DLManagedTensor* dlpack_from_tensor(const Tensor& tensor) {
  return export_managed<DLManagedTensor>(tensor);
}

DLManagedTensorVersioned* versioned_dlpack_from_tensor(const Tensor& tensor, bool read_only) {
  DLManagedTensorVersioned* managed = export_managed<DLManagedTensorVersioned>(tensor);
  managed->version = {kVersionMajor, kVersionMinor};
  managed->flags = read_only ? kDLPackReadOnly : 0;
  return managed;
}

}  // namespace lockstep
