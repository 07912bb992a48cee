#include "tensor/index_expression.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

Tensor counted(const Shape& shape) {
  Tensor tensor = Tensor::empty(DType::kF32, shape);
  std::iota(tensor.mutable_data<float>(), tensor.mutable_data<float>() + tensor.numel(), 0.0f);
  return tensor;
}

void expect_slice(const Shape& from, const char* expression, const Shape& shape, const std::vector<float>& values) {
  const Tensor view = apply_slice(counted(from), expression);
  EXPECT_EQ(view.shape(), shape) << expression;
  EXPECT_EQ(to_floats(view), values) << expression;
}

// The expectations are NumPy's for np.arange(n).reshape(shape)[...]; tests/python/test_cli_tensors.py asks NumPy
// itself.
TEST(IndexExpression, LikeNumPy) {
  expect_slice({6}, "[2]", {}, {2});
  expect_slice({6}, "-1", {}, {5});
  expect_slice({6}, "[1:4]", {3}, {1, 2, 3});
  expect_slice({6}, "[::-1]", {6}, {5, 4, 3, 2, 1, 0});
  expect_slice({6}, "[4:1:-2]", {2}, {4, 2});
  expect_slice({6}, "[-100:100:4]", {2}, {0, 4});
  expect_slice({6}, "[4:2]", {0}, {});
  expect_slice({6}, "[5:6:4611686018427387904]", {1}, {5});
  expect_slice({2, 3}, "[:, 1]", {2}, {1, 4});
  expect_slice({2, 3}, "[..., -1]", {2}, {2, 5});
  expect_slice({2, 3}, "[1, ...]", {3}, {3, 4, 5});
  expect_slice({2, 3}, "[...]", {2, 3}, {0, 1, 2, 3, 4, 5});
  expect_slice({2, 3}, "[]", {2, 3}, {0, 1, 2, 3, 4, 5});
  expect_slice({2, 3}, " [ 1 , ] ", {3}, {3, 4, 5});
  expect_slice({2, 2, 2}, "[1, ::-1, 0]", {2}, {6, 4});
  expect_slice({2, 2, 2}, "[1, 0, 1]", {}, {5});
}

TEST(IndexExpression, RefusesWhatNumPyRefuses) {
  for (const char* bad : {"[6]", "[-7]", "[0, 0]", "[::0]", "[a]", "[1:2:3:4]", "[..., ...]", "[1", "[,]", "[1.5]",
                          "[99999999999999999999]", "[1 2]"})
    EXPECT_THROW(apply_slice(counted({6}), bad), Error) << bad;
}

TEST(IndexExpression, ViewOutlivesItsTensor) {
  Tensor view;
  {
    const Tensor tensor = counted({100});
    view = apply_slice(tensor, "[10:20:3]");
  }
  EXPECT_EQ(to_floats(view), (std::vector<float>{10, 13, 16, 19}));
}

}  // namespace
}  // namespace lockstep
