#include "tensor/element_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace lockstep {
namespace {

// One run along the innermost axis. A fixed-size memcpy is one load and one store; a variable one is a call.
template <size_t kBytes>
void copy_run(const std::byte* from, int64_t step_bytes, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * static_cast<int64_t>(kBytes), from + i * step_bytes, kBytes);
}

}  // namespace

int64_t chunk_elements(int64_t count) {
  constexpr int64_t kSmallest = 128 * kBlockElements, kMostChunks = 4096;
  const int64_t blocks = (count / kMostChunks + kBlockElements) / kBlockElements;
  return std::max(kSmallest, blocks * kBlockElements);
}

bool fits_float(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI32:
    case DType::kI64:
    case DType::kU32:
    case DType::kU64:
      return false;
    default:
      return true;
  }
}

ElementBlocks::ElementBlocks(const Tensor& tensor)
    : tensor_(tensor), contiguous_(tensor.is_contiguous()), item_bytes_(dtype_bytes(tensor.dtype())) {}

const std::byte* ElementBlocks::raw(int64_t begin, int64_t count, std::byte* scratch) const {
  if (contiguous_) return tensor_.strided_data() + begin * static_cast<int64_t>(item_bytes_);
  gather(begin, count, scratch);
  return scratch;
}

void ElementBlocks::gather(int64_t begin, int64_t count, std::byte* out) const {
  const Shape& shape = tensor_.shape();
  const Strides& strides = tensor_.strides();
  const size_t rank = shape.size();  // at least 1: a 0-d tensor is contiguous
  const int64_t item = static_cast<int64_t>(item_bytes_);
  std::array<int64_t, kMaxRank> index{};
  const std::byte* at = tensor_.strided_data();
  int64_t rest = begin;
  for (size_t axis = rank; axis-- > 0;) {
    index[axis] = rest % shape[axis];
    rest /= shape[axis];
    at += index[axis] * strides[axis] * item;
  }
  const int64_t inner = strides[rank - 1] * item;
  while (count > 0) {
    const int64_t run = std::min(count, shape[rank - 1] - index[rank - 1]);
    switch (item) {
      case 1:
        copy_run<1>(at, inner, run, out);
        break;
      case 2:
        copy_run<2>(at, inner, run, out);
        break;
      case 4:
        copy_run<4>(at, inner, run, out);
        break;
      default:
        copy_run<8>(at, inner, run, out);
        break;
    }
    out += run * item;
    count -= run;
    at += run * inner;
    index[rank - 1] += run;
    // carry: an axis that is full goes back to 0 and the one before it advances
    for (size_t axis = rank - 1; axis > 0 && index[axis] == shape[axis]; --axis) {
      at += (strides[axis - 1] - strides[axis] * shape[axis]) * item;
      index[axis] = 0;
      ++index[axis - 1];
    }
  }
}

}  // namespace lockstep
