#include "tensor/shape.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

int64_t checked_numel(const Shape& shape) {
  if (shape.size() > kMaxRank)
    fail(Code::kBadInput, "shape", "too many axes",
         {.expected = "at most " + std::to_string(kMaxRank), .got = std::to_string(shape.size())});
  constexpr int64_t kLargest = int64_t{1} << 62;
  int64_t numel = 1;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) fail(Code::kBadInput, "shape", "negative size in " + to_string(shape));
    if (size == 0) empty = true;
    if (size > 0 && numel > kLargest / size)
      fail(Code::kBadInput, "shape", to_string(shape) + " has more elements than memory can hold");
    if (size > 0) numel *= size;
  }
  return empty ? 0 : numel;
}

Shape without_ones(Shape shape) {
  erase(shape, 1);
  return shape;
}

Strides contiguous_strides(const Shape& shape) {
  checked_numel(shape);  // no product below can overflow once this passes
  Strides strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  const size_t rank = std::max(a.size(), b.size());
  Shape out(rank);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t x = i < rank - a.size() ? 1 : a[i - (rank - a.size())];
    const int64_t y = i < rank - b.size() ? 1 : b[i - (rank - b.size())];
    if (x != y && x != 1 && y != 1)
      fail(Code::kBadInput, "broadcast", to_string(a) + " and " + to_string(b) + " do not broadcast");
    out[i] = x == 1 ? y : x;
  }
  return out;
}

Shape resolve_reshape(const Shape& requested, int64_t numel) {
  Shape shape = requested;
  int64_t known = 1;
  int64_t* open = nullptr;
  for (int64_t& size : shape) {
    if (size == -1 && !open)
      open = &size;
    else if (size < 0)
      fail(Code::kBadInput, "reshape", to_string(requested) + " is not a shape",
           {.expected = "sizes of 0 or more and at most one -1"});
    else if (__builtin_mul_overflow(known, size, &known))
      fail(Code::kBadInput, "reshape", to_string(requested) + " has more elements than memory can hold");
  }
  if (open) *open = known > 0 && numel % known == 0 ? numel / known : -1;
  if ((open && *open < 0) || checked_numel(shape) != numel)
    fail(Code::kBadInput, "reshape", std::to_string(numel) + " elements do not fit " + to_string(requested));
  return shape;
}

}  // namespace lockstep
