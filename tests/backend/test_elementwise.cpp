#include "backend/cases.h"

namespace lockstep::testing {
namespace {

class ElementwiseKernel : public ByDType {};
LOCKSTEP_FOR_DTYPES(ElementwiseKernel);

constexpr UnaryOp kUnary[] = {UnaryOp::kSilu, UnaryOp::kGeluTanh, UnaryOp::kGeluErf, UnaryOp::kNegate,
                              UnaryOp::kCos,  UnaryOp::kSin,      UnaryOp::kExp,     UnaryOp::kClampUnit};
constexpr BinaryOp kBinary[] = {BinaryOp::kAdd, BinaryOp::kSubtract, BinaryOp::kMultiply, BinaryOp::kDivide,
                                BinaryOp::kSiluMultiply};

TEST_P(ElementwiseKernel, UnaryOverTheWholeRange) {
  for (const int64_t columns : {1001, 1000}) {  // odd, and in whole vectors
    Tensor values = Tensor::empty(DType::kF32, {3, columns});
    for (int64_t i = 0; i < values.numel(); ++i)
      values.mutable_data<float>()[i] = static_cast<float>(i - values.numel() / 2) * 0.008f;
    const Tensor x = values.to(GetParam());
    for (const UnaryOp op : kUnary)
      expect_agreement(GetParam(), x.shape(), tolerance(GetParam(), 1), "op " + std::to_string(static_cast<int>(op)),
                       [&](Backend& b, Tensor& out) { b.unary({.op = op, .x = x, .out = out}); });
  }
}

TEST_P(ElementwiseKernel, UnarySpecialValues) {
  const Tensor x =
      Tensor::from<float>({8}, {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 60000.0f, -60000.0f, 1e-5f}).to(GetParam());
  for (const UnaryOp op : kUnary)
    expect_agreement(GetParam(), x.shape(), tolerance(GetParam(), 1), "op " + std::to_string(static_cast<int>(op)),
                     [&](Backend& b, Tensor& out) { b.unary({.op = op, .x = x, .out = out}); });
}

TEST_P(ElementwiseKernel, BinaryBroadcasts) {
  Random random(61);
  const std::pair<Shape, Shape> shapes[] = {
      {{3, 5, 17}, {3, 5, 17}}, {{3, 5, 17}, {17}}, {{3, 5, 17}, {3, 5, 1}},  {{3, 1, 17}, {5, 17}},
      {{1}, {4, 33}},           {{4, 33}, {}},      {{2, 1, 1}, {1, 3, 19}},  {{0, 4}, {4}},
      {{1, 1}, {1, 1}},         {{4, 1}, {1, 9}},   {{2, 3, 2, 2}, {3, 1, 1}}};
  for (const auto& [a_shape, b_shape] : shapes)
    for (const BinaryOp op : kBinary) {
      const Tensor a = random.tensor(GetParam(), a_shape), b = random.tensor(GetParam(), b_shape, 0.2f, 2);
      const std::string what = to_string(a_shape) + " with " + to_string(b_shape);
      expect_agreement(GetParam(), broadcast_shapes(a_shape, b_shape), tolerance(GetParam(), 1), what,
                       [&](Backend& k, Tensor& out) { k.binary({.op = op, .a = a, .b = b, .out = out}); });
    }
}

TEST_P(ElementwiseKernel, BinaryOnViews) {
  Random random(62);
  const Tensor a = random.tensor(GetParam(), {4, 6, 20}), b = random.tensor(GetParam(), {6, 4, 20});
  expect_agreement(GetParam(), a.shape(), tolerance(GetParam(), 1), "views", [&](Backend& k, Tensor& out) {
    const Tensor turned = b.transpose(0, 1);
    k.binary({.op = BinaryOp::kAdd, .a = a, .b = turned, .out = out});
  });
}

TEST_P(ElementwiseKernel, AddGated) {
  Random random(63);
  for (const int64_t width : {1, 15, 16, 17, 200}) {
    const Tensor x = random.tensor(GetParam(), {2, 3, width}), y = random.tensor(GetParam(), {2, 3, width});
    const Tensor gate = random.tensor(GetParam(), {2, width});
    expect_agreement(GetParam(), x.shape(), tolerance(GetParam(), 1), "gated " + std::to_string(width),
                     [&](Backend& b, Tensor& out) { b.add_gated({.x = x, .gate = gate, .y = y, .out = out}); });
  }
}

TEST(ElementwiseMixed, DtypesMeetInFloats) {
  Random random(64);
  const Tensor a = random.tensor(DType::kBF16, {3, 20}), b = random.tensor(DType::kF32, {20});
  expect_agreement(DType::kF32, a.shape(), tolerance(DType::kF32, 1), "mixed",
                   [&](Backend& k, Tensor& out) { k.binary({.op = BinaryOp::kMultiply, .a = a, .b = b, .out = out}); });
  const Tensor d = random.tensor(DType::kF64, {3, 20});
  expect_agreement(DType::kF64, d.shape(), tolerance(DType::kF32, 1), "doubles",
                   [&](Backend& k, Tensor& out) { k.unary({.op = UnaryOp::kSilu, .x = d, .out = out}); });
}

}  // namespace
}  // namespace lockstep::testing
