// A tensor seen as rows of its contiguous last axis, whatever the strides before it.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/error.h"
#include "tensor/tensor.h"

namespace lockstep::cpu {

class Rows {
 public:
  Rows() = default;
  Rows(const Tensor& tensor, const char* operation)
      : base_(const_cast<std::byte*>(tensor.strided_data())), item_(static_cast<int64_t>(dtype_bytes(tensor.dtype()))) {
    const size_t rank = tensor.rank();
    columns_ = rank ? tensor.shape()[rank - 1] : 1;
    if (rank && columns_ > 1 && tensor.strides()[rank - 1] != 1)
      fail(Code::kBadInput, operation, "the last axis must be contiguous",
           {.expected = "stride 1", .got = std::to_string(tensor.strides()[rank - 1]), .hint = "contiguous() first"});
    for (size_t axis = 0; axis + 1 < rank; ++axis) {
      const int64_t size = tensor.shape()[axis], stride = tensor.strides()[axis] * item_;
      count_ *= size;
      if (size == 1) continue;
      if (axes_ > 0 && stride_[axes_ - 1] == stride * size) {  // continues the axis before it
        size_[axes_ - 1] *= size;
        stride_[axes_ - 1] = stride;
      } else {
        size_[axes_] = size;
        stride_[axes_++] = stride;
      }
    }
    if (axes_ == 0) stride_[axes_++] = columns_ * item_, size_[0] = 1;
  }

  int64_t count() const { return count_; }
  int64_t columns() const { return columns_; }
  bool uniform() const { return axes_ == 1; }  // one stride leads from row to row
  int64_t stride_bytes() const { return stride_[0]; }
  bool packed() const { return uniform() && (count_ <= 1 || stride_[0] == columns_ * item_); }

  // Every row starts at and fills whole cache lines, and all of them together are beyond any cache.
  bool worth_streaming() const {
    constexpr int64_t kLine = 64, kBeyondCaches = 16 << 20;
    return uniform() && reinterpret_cast<uintptr_t>(base_) % kLine == 0 && stride_[0] % kLine == 0 &&
           columns_ * item_ % kLine == 0 && count_ * columns_ * item_ >= kBeyondCaches;
  }
  const std::byte* base() const { return base_; }

  std::byte* bytes(int64_t row) const {
    if (axes_ == 1) return base_ + row * stride_[0];
    std::byte* at = base_;
    for (size_t axis = axes_; axis-- > 0;) {
      at += row % size_[axis] * stride_[axis];
      row /= size_[axis];
    }
    return at;
  }
  template <typename T>
  T* at(int64_t row) const {
    return reinterpret_cast<T*>(bytes(row));
  }

 private:
  std::byte* base_ = nullptr;
  int64_t item_ = 0, count_ = 1, columns_ = 0;
  size_t axes_ = 0;
  std::array<int64_t, kMaxRank + 1> size_{}, stride_{};
};

}  // namespace lockstep::cpu
