// Shape checks with messages that name the operation and both shapes.
#pragma once
#include <string>
#include <string_view>

#include "base/error.h"
#include "tensor/tensor.h"

namespace lockstep::ops {

inline void expect(bool ok, std::string_view operation, std::string_view what, const Shape& expected,
                   const Shape& got) {
  if (!ok) fail(Code::kBadInput, operation, what, {.expected = to_string(expected), .got = to_string(got)});
}

inline void expect_tensor(const Tensor& tensor, std::string_view operation, std::string_view what) {
  if (!tensor.defined()) fail(Code::kBadInput, operation, std::string(what) + " has no storage");
}

inline void expect_shape(const Tensor& tensor, const Shape& shape, std::string_view operation, std::string_view what) {
  expect(tensor.shape() == shape, operation, what, shape, tensor.shape());
}

inline void expect_rank(const Tensor& tensor, size_t rank, std::string_view operation, std::string_view what) {
  if (tensor.rank() != rank)
    fail(Code::kBadInput, operation, what,
         {.expected = std::to_string(rank) + " axes", .got = to_string(tensor.shape())});
}

}  // namespace lockstep::ops
