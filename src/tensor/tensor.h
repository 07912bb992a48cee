// A tensor: a value that shares its storage. Views never copy; nothing reads a strided view as if it were contiguous.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace lockstep {

class Storage;

class Tensor {
 public:
  Tensor() = default;  // no tensor; defined() is false

  static Tensor empty(DType dtype, const Shape& shape);  // uninitialised
  static Tensor zeros(DType dtype, const Shape& shape);
  // Foreign bytes; `owner` keeps them alive. Strides empty: contiguous.
  static Tensor wrap(const void* data, DType dtype, const Shape& shape, std::shared_ptr<const void> owner,
                     const Strides& strides = {});
  // A tensor in a storage that a backend allocated. Strides empty: contiguous.
  static Tensor on(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape, const Strides& strides = {},
                   int64_t offset_bytes = 0);
  template <typename T>
  static Tensor from(const Shape& shape, std::span<const T> values);
  template <typename T>
  static Tensor from(const Shape& shape, std::initializer_list<T> values) {
    return from<T>(shape, std::span<const T>(values.begin(), values.size()));
  }

  bool defined() const { return storage_ != nullptr; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  size_t rank() const { return shape_.size(); }
  int64_t dim(int axis) const;  // negative counts from the end
  int64_t numel() const { return numel_; }
  size_t bytes() const { return static_cast<size_t>(numel_) * dtype_bytes(dtype_); }
  bool is_contiguous() const;

  // Where the bytes are. A tensor in host memory is read directly; one on a device is read through host(), or by the
  // backend that owns it, from storage() on.
  bool on_host() const { return data_ != nullptr; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  int64_t offset_bytes() const { return offset_bytes_; }  // of the first element
  Tensor host() const;  // itself in host memory, else a host tensor of the same values and strides

  // Element pointers of a contiguous tensor of that type in host memory; anything else is an error.
  template <typename T>
  const T* data() const {
    check_access(DTypeOf<T>::kValue);
    return reinterpret_cast<const T*>(data_);
  }
  template <typename T>
  T* mutable_data() {
    check_access(DTypeOf<T>::kValue);
    return reinterpret_cast<T*>(const_cast<std::byte*>(data_));
  }
  std::span<const std::byte> contiguous_bytes() const;
  // The first element's address in host memory, for code that honours strides() itself.
  const std::byte* strided_data() const {
    if (!data_) refuse_access();
    return data_;
  }
  std::byte* mutable_strided_data() { return const_cast<std::byte*>(strided_data()); }

  Tensor slice(int axis, int64_t begin, int64_t end, int64_t step = 1) const;  // 0 <= begin <= end <= size, step >= 1
  Tensor select(int axis, int64_t index) const;                                // drops the axis
  Tensor transpose(int a, int b) const;
  Tensor permute(const std::vector<int>& axes) const;
  Tensor unsqueeze(int axis) const;
  Tensor squeeze(int axis) const;
  Tensor broadcast_to(const Shape& shape) const;
  Tensor reshape(
      const Shape& shape) const;  // a view of a contiguous tensor; a strided one is an error: say contiguous() first
  Tensor contiguous() const;      // itself, or a packed copy
  Tensor clone() const;           // always a packed copy
  Tensor to(DType dtype) const;   // itself when nothing changes, else a packed converted copy

 private:
  void check_access(DType wanted) const;
  [[noreturn]] void refuse_access() const;
  int normal_axis(int axis, const char* operation) const;

  const std::byte* data_ = nullptr;  // null on a device
  std::shared_ptr<Storage> storage_;
  int64_t offset_bytes_ = 0;
  DType dtype_ = DType::kF32;
  int64_t numel_ = 0;
  Shape shape_;
  Strides strides_;
};

template <typename T>
Tensor Tensor::from(const Shape& shape, std::span<const T> values) {
  Tensor tensor = empty(DTypeOf<T>::kValue, shape);
  if (static_cast<size_t>(tensor.numel()) != values.size()) checked_numel(Shape{-1});
  T* out = tensor.mutable_data<T>();
  for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
  return tensor;
}

}  // namespace lockstep
