// The elements of a tensor as floats or doubles, any dtype and strides, a piece at a time.
#pragma once
#include <algorithm>
#include <vector>

#include "tensor/convert.h"
#include "tensor/element_blocks.h"

namespace lockstep {

template <typename Value>
class ValueReader {
 public:
  explicit ValueReader(const Tensor& tensor) : blocks_(tensor), raw_(kBlockElements * 8) {}

  void read(int64_t begin, int64_t count, Value* out) {
    for (int64_t done = 0; done < count; done += kBlockElements) {
      const int64_t size = std::min(kBlockElements, count - done);
      const std::byte* raw = blocks_.raw(begin + done, size, raw_.data());
      convert_elements(raw, blocks_.dtype(), out + done, DTypeOf<Value>::kValue, size);
    }
  }

 private:
  ElementBlocks blocks_;
  std::vector<std::byte> raw_;
};

using FloatReader = ValueReader<float>;

}  // namespace lockstep
