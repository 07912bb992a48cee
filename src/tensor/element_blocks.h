// A tensor's elements in row-major order, handed out in blocks that fit the first-level cache: the way to stream over a
// tensor of any dtype and any strides without ever packing or converting the whole of it.
#pragma once
#include <cstdint>

#include "tensor/tensor.h"

namespace lockstep {

inline constexpr int64_t kBlockElements = 2048;

// How a streaming pass over `count` elements is cut for threads: chunks of whole blocks, large enough to cost nothing,
// few enough (4096) that one result a chunk is small, and never dependent on the number of threads.
int64_t chunk_elements(int64_t count);

// Every value of the dtype is exactly a float: f32 and narrower floats, integers of 16 bits or fewer, bool.
bool fits_float(DType dtype);

class ElementBlocks {
 public:
  explicit ElementBlocks(const Tensor& tensor);

  // `count` (at most kBlockElements) elements from row-major position `begin`, in the tensor's own dtype. Points into
  // the tensor where it is contiguous, else into `scratch` (kBlockElements * 8 bytes), which is filled.
  const std::byte* raw(int64_t begin, int64_t count, std::byte* scratch) const;

  DType dtype() const { return tensor_.dtype(); }
  bool contiguous() const { return contiguous_; }

 private:
  void gather(int64_t begin, int64_t count, std::byte* out) const;

  Tensor tensor_;
  bool contiguous_;
  size_t item_bytes_;
};

}  // namespace lockstep
