#include "tensor/tensor.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "tensor/convert.h"
#include "tensor/rehearsal.h"
#include "tensor/storage.h"

namespace lockstep {
namespace {

class HostStorage final : public Storage {
 public:
  HostStorage(const std::byte* data, std::shared_ptr<const void> owner) : data_(data), owner_(std::move(owner)) {}
  std::shared_ptr<const std::byte> host(size_t offset, size_t) const override { return {owner_, data_ + offset}; }

 private:
  const std::byte* data_;
  std::shared_ptr<const void> owner_;
};

}  // namespace

Tensor Tensor::empty(DType dtype, const Shape& shape) {
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  tensor.strides_ = contiguous_strides(shape);
  tensor.numel_ = checked_numel(shape);
  if (tensor.numel_ > (int64_t{1} << 60)) fail(Code::kMemory, "allocate", to_string(shape) + " is beyond any memory");
  std::shared_ptr<std::byte> bytes = allocate_bytes(tensor.bytes());
  tensor.data_ = bytes.get();
  tensor.storage_ = std::make_shared<HostStorage>(tensor.data_, std::move(bytes));
  return tensor;
}

Tensor Tensor::zeros(DType dtype, const Shape& shape) {
  Tensor tensor = empty(dtype, shape);
  std::memset(tensor.mutable_strided_data(), 0, tensor.bytes());
  return tensor;
}

Tensor Tensor::wrap(const void* data, DType dtype, const Shape& shape, std::shared_ptr<const void> owner,
                    const Strides& strides) {
  if (!data) fail(Code::kBadInput, "tensor", "null storage");
  if (!strides.empty() && strides.size() != shape.size())
    fail(Code::kBadInput, "tensor", "strides and shape differ in rank");
  if (reinterpret_cast<uintptr_t>(data) % dtype_bytes(dtype) != 0)
    fail(Code::kBadInput, "tensor", "storage is not aligned to its element size");
  Tensor tensor;
  tensor.data_ = static_cast<const std::byte*>(data);
  tensor.storage_ = std::make_shared<HostStorage>(tensor.data_, std::move(owner));
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  tensor.strides_ = strides.empty() ? contiguous_strides(shape) : strides;
  tensor.numel_ = checked_numel(shape);
  return tensor;
}

Tensor Tensor::on(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape, const Strides& strides,
                  int64_t offset_bytes) {
  if (!storage) fail(Code::kBadInput, "tensor", "null storage");
  if (!strides.empty() && strides.size() != shape.size())
    fail(Code::kBadInput, "tensor", "strides and shape differ in rank");
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = shape;
  tensor.strides_ = strides.empty() ? contiguous_strides(shape) : strides;
  tensor.numel_ = checked_numel(shape);
  tensor.offset_bytes_ = offset_bytes;
  if (!storage->device()) tensor.data_ = storage->host(static_cast<size_t>(offset_bytes), tensor.bytes()).get();
  tensor.storage_ = std::move(storage);
  return tensor;
}

Tensor Tensor::host() const {
  if (!defined() || on_host()) return *this;
  // The bytes between the first and the last element of the view; strides may run either way.
  const int64_t item = static_cast<int64_t>(dtype_bytes(dtype_));
  int64_t low = 0, high = numel_ ? item : 0;
  for (size_t i = 0; i < rank() && numel_; ++i) {
    const int64_t reach = (shape_[i] - 1) * strides_[i] * item;
    (reach < 0 ? low : high) += reach;
  }
  const std::shared_ptr<const std::byte> bytes =
      storage_->host(static_cast<size_t>(offset_bytes_ + low), static_cast<size_t>(high - low));
  return wrap(bytes.get() - low, dtype_, shape_, bytes, strides_);
}

int Tensor::normal_axis(int axis, const char* operation) const {
  const int r = static_cast<int>(rank());
  const int normal = axis < 0 ? axis + r : axis;
  if (normal < 0 || normal >= r)
    fail(Code::kBadInput, operation, "axis out of range",
         {.expected = "an axis of " + to_string(shape_), .got = std::to_string(axis)});
  return normal;
}

int64_t Tensor::dim(int axis) const {
  return shape_[static_cast<size_t>(normal_axis(axis, "dim"))];
}

bool Tensor::is_contiguous() const {
  int64_t step = 1;
  for (size_t i = rank(); i-- > 0;) {
    if (shape_[i] == 1) continue;  // its stride is never used
    if (strides_[i] != step) return numel_ == 0;
    step *= shape_[i];
  }
  return true;
}

void Tensor::check_access(DType wanted) const {
  if (!data_) refuse_access();
  if (dtype_ != wanted)
    fail(Code::kInternal, "tensor", "wrong element type",
         {.expected = std::string(dtype_name(wanted)), .got = std::string(dtype_name(dtype_))});
  if (!is_contiguous())
    fail(Code::kInternal, "tensor", "a strided view was read as contiguous", {.hint = "contiguous()"});
}

void Tensor::refuse_access() const {
  if (!defined()) fail(Code::kInternal, "tensor", "no tensor here");
  fail(Code::kInternal, "tensor", "bytes on a device were read as host memory",
       {.expected = "a host tensor", .got = std::string("one on ") + storage_->place(), .hint = "host()"});
}

std::span<const std::byte> Tensor::contiguous_bytes() const {
  check_access(dtype_);
  return {data_, bytes()};
}

Tensor Tensor::slice(int axis, int64_t begin, int64_t end, int64_t step) const {
  const size_t at = static_cast<size_t>(normal_axis(axis, "slice"));
  if (begin < 0 || end < begin || end > shape_[at] || step < 1)
    fail(Code::kBadInput, "slice", "range out of bounds",
         {.expected = "0 <= begin <= end <= " + std::to_string(shape_[at]),
          .got = std::to_string(begin) + ":" + std::to_string(end) + ":" + std::to_string(step)});
  Tensor view = *this;
  if (begin < end) {
    const int64_t skipped = begin * strides_[at] * static_cast<int64_t>(dtype_bytes(dtype_));
    view.offset_bytes_ += skipped;
    if (view.data_) view.data_ += skipped;
  }
  view.shape_[at] = (end - begin + step - 1) / step;
  view.strides_[at] *= step;
  view.numel_ = checked_numel(view.shape_);
  return view;
}

Tensor Tensor::select(int axis, int64_t index) const {
  return slice(axis, index, index + 1).squeeze(axis);
}

Tensor Tensor::transpose(int a, int b) const {
  const size_t i = static_cast<size_t>(normal_axis(a, "transpose")),
               j = static_cast<size_t>(normal_axis(b, "transpose"));
  Tensor view = *this;
  std::swap(view.shape_[i], view.shape_[j]);
  std::swap(view.strides_[i], view.strides_[j]);
  return view;
}

Tensor Tensor::permute(const std::vector<int>& axes) const {
  std::vector<bool> seen(rank(), false);
  Tensor view = *this;
  if (axes.size() != rank())
    fail(Code::kBadInput, "permute", "wrong number of axes",
         {.expected = std::to_string(rank()), .got = std::to_string(axes.size())});
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t from = static_cast<size_t>(normal_axis(axes[i], "permute"));
    if (seen[from]) fail(Code::kBadInput, "permute", "an axis is named twice");
    seen[from] = true;
    view.shape_[i] = shape_[from];
    view.strides_[i] = strides_[from];
  }
  return view;
}

Tensor Tensor::unsqueeze(int axis) const {
  const int r = static_cast<int>(rank());
  const int at = axis < 0 ? axis + r + 1 : axis;
  if (at < 0 || at > r) fail(Code::kBadInput, "unsqueeze", "axis out of range");
  Tensor view = *this;
  view.shape_.insert(view.shape_.begin() + at, 1);
  view.strides_.insert(view.strides_.begin() + at,
                       at < r ? strides_[static_cast<size_t>(at)] * shape_[static_cast<size_t>(at)] : 1);
  return view;
}

Tensor Tensor::squeeze(int axis) const {
  const int at = normal_axis(axis, "squeeze");
  if (shape_[static_cast<size_t>(at)] != 1)
    fail(Code::kBadInput, "squeeze", "axis has more than one element",
         {.expected = "size 1", .got = to_string(shape_)});
  Tensor view = *this;
  view.shape_.erase(view.shape_.begin() + at);
  view.strides_.erase(view.strides_.begin() + at);
  return view;
}

Tensor Tensor::broadcast_to(const Shape& shape) const {
  if (broadcast_shapes(shape_, shape) != shape)
    fail(Code::kBadInput, "broadcast", to_string(shape_) + " does not broadcast to " + to_string(shape));
  Tensor view = *this;
  const size_t extra = shape.size() - rank();
  view.shape_ = shape;
  view.strides_.assign(shape.size(), 0);
  for (size_t i = extra; i < shape.size(); ++i)
    if (shape_[i - extra] == shape[i]) view.strides_[i] = strides_[i - extra];
  view.numel_ = checked_numel(shape);
  return view;
}

Tensor Tensor::reshape(const Shape& requested) const {
  const Shape shape = resolve_reshape(requested, numel_);
  if (!is_contiguous())
    fail(Code::kInternal, "reshape", "a strided view cannot be reshaped in place", {.hint = "contiguous() first"});
  Tensor view = *this;
  view.shape_ = shape;
  view.strides_ = contiguous_strides(shape);
  return view;
}

Tensor Tensor::contiguous() const {
  return is_contiguous() ? *this : clone();
}

Tensor Tensor::clone() const {
  Tensor packed = empty(dtype_, shape_);
  if (!rehearsing()) copy_strided(*this, packed);
  return packed;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  const Tensor packed = contiguous();
  Tensor converted = empty(dtype, shape_);
  if (!rehearsing()) convert_elements(packed.strided_data(), dtype_, converted.mutable_strided_data(), dtype, numel_);
  return converted;
}

}  // namespace lockstep
