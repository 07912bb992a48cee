// Shapes that nobody thought of: random ones, shrunk to the smallest that fails.
#include <rapidcheck.h>

#include <cstdlib>

#include "backend/cases.h"
#include "backend/quantize.h"

namespace lockstep::testing {
namespace {

int64_t any(int64_t low, int64_t high) {
  return *rc::gen::inRange<int64_t>(low, high + 1);
}

DType any_dtype() {
  return *rc::gen::element(DType::kF32, DType::kBF16, DType::kF16);
}

// Fails the property with what differs.
template <typename Call>
void agree(DType dtype, const Shape& shape, const Tolerance& tolerance, Call&& call) {
  Tensor expected = Tensor::zeros(dtype, shape), got = Tensor::zeros(dtype, shape);
  call(reference(), expected);
  call(fast(), got);
  const std::string wrong = difference(expected, got, tolerance);
  if (!wrong.empty()) RC_FAIL(wrong);
}

// The same cases every time, unless RC_PARAMS asks for others.
template <typename Property>
void expect_property(Property&& property) {
  setenv("RC_PARAMS", "seed=1 max_success=40 noshrink=0", 0);
  EXPECT_TRUE(rc::check(property));
}

TEST(KernelProperties, LinearOfAnyShape) {
  expect_property([] {
    const DType dtype = any_dtype();
    const int64_t rows = any(1, 40), n = any(1, 140), k = any(1, 200);
    Random random(static_cast<uint64_t>(any(0, 1000)));
    LinearWeight weight;
    weight.weight = random.tensor(dtype, {n, k}, 1 / std::sqrt(static_cast<float>(k)));
    if (any(0, 1)) fast().prepare(weight, dtype);
    const Tensor x = random.tensor(dtype, {rows, k});
    agree(dtype, {rows, n}, tolerance(dtype, k),
          [&](Backend& b, Tensor& out) { b.linear({.x = x, .weight = weight, .out = out}); });
  });
}

TEST(KernelProperties, QuantisedLinearOfAnyShape) {
  expect_property([] {
    const DType dtype = any_dtype();
    const int bits = *rc::gen::element(2, 3, 4, 6, 8), group = *rc::gen::element(32, 64, 128);
    const int64_t rows = any(1, 30), n = any(1, 140), k = group * any(1, 4);
    Random random(static_cast<uint64_t>(any(0, 1000)));
    LinearWeight weight;
    weight.weight = random.tensor(dtype, {n, k});
    quantize_in_place(weight, bits, group);
    const Tensor x = random.tensor(dtype, {rows, k});
    agree(dtype, {rows, n}, tolerance(dtype, k, Operands::kRounded),
          [&](Backend& b, Tensor& out) { b.linear({.x = x, .weight = weight, .out = out}); });
  });
}

TEST(KernelProperties, AttentionOfAnyShape) {
  expect_property([] {
    const DType dtype = any_dtype();
    const int64_t groups = any(1, 2), heads = groups * any(1, 2), width = any(1, 70);
    const int64_t queries = any(1, 30), keys = any(0, 1) ? any(1, 80) : any(257, 330);
    const bool causal = queries <= keys && any(0, 1);
    Random random(static_cast<uint64_t>(any(0, 1000)));
    const Tensor q = random.tensor(dtype, {1, queries, heads, width});
    const Tensor k = random.tensor(dtype, {1, keys, groups, width}), v = random.tensor(dtype, {1, keys, groups, width});
    const float scale = 1 / std::sqrt(static_cast<float>(width));
    agree(dtype, q.shape(), tolerance(dtype, keys, Operands::kRounded, 5), [&](Backend& b, Tensor& out) {
      b.attention({.q = q, .k = k, .v = v, .out = out, .scale = scale, .causal = causal});
    });
  });
}

TEST(KernelProperties, BinaryOfAnyBroadcast) {
  expect_property([] {
    const DType dtype = any_dtype();
    const Shape shape = {any(1, 4), any(1, 5), any(1, 40)};
    Shape a_shape = shape, b_shape = shape;
    for (size_t axis = 0; axis < 3; ++axis) {
      const int64_t which = any(0, 3);
      if (which == 1) a_shape[axis] = 1;
      if (which == 2) b_shape[axis] = 1;
    }
    const auto op = static_cast<BinaryOp>(any(0, 4));
    Random random(static_cast<uint64_t>(any(0, 1000)));
    const Tensor a = random.tensor(dtype, a_shape), b = random.tensor(dtype, b_shape, 0.2f, 2);
    agree(dtype, shape, tolerance(dtype, 1),
          [&](Backend& k, Tensor& out) { k.binary({.op = op, .a = a, .b = b, .out = out}); });
  });
}

TEST(KernelProperties, ConvolutionOfAnyGeometry) {
  expect_property([] {
    const DType dtype = any_dtype();
    const int64_t kernel = *rc::gen::element(1, 3), inputs = any(1, 40), outputs = any(1, 40);
    const int stride = static_cast<int>(any(1, 2));
    const int before = static_cast<int>(any(0, kernel / 2)), after = static_cast<int>(any(0, 1));
    const int64_t height = any(kernel, 12), width = any(kernel, 12);
    Random random(static_cast<uint64_t>(any(0, 1000)));
    ConvWeight weight;
    weight.weight = random.tensor(dtype, {outputs, inputs, kernel, kernel}, 0.2f);
    if (any(0, 1)) weight.bias = random.tensor(dtype, {outputs});
    if (any(0, 1)) fast().prepare(weight, dtype);
    const Tensor x = random.tensor(dtype, {any(1, 2), height, width, inputs});
    const Shape shape = {x.dim(0), (height + before + after - kernel) / stride + 1,
                         (width + before + after - kernel) / stride + 1, outputs};
    agree(dtype, shape, tolerance(dtype, inputs * kernel * kernel), [&](Backend& b, Tensor& out) {
      b.conv2d({.x = x,
                .weight = weight,
                .out = out,
                .stride = stride,
                .pad_top = before,
                .pad_left = before,
                .pad_bottom = after,
                .pad_right = after});
    });
  });
}

TEST(KernelProperties, RotationOfAnyHead) {
  expect_property([] {
    const DType dtype = any_dtype();
    const int64_t width = any(0, 1) ? 2 * any(1, 80) : 32 * any(1, 8), tokens = any(1, 9);
    Random random(static_cast<uint64_t>(any(0, 1000)));
    const Tensor x = random.tensor(dtype, {any(1, 2), tokens, any(1, 11), width}, 2);
    const Tensor weight = random.tensor(dtype, {width});
    const Tensor cos = random.tensor(DType::kF32, {tokens, width / 2}), sin = random.tensor(DType::kF32, cos.shape());
    const auto style = static_cast<RopeStyle>(any(0, 2));
    const bool norm = any(0, 1);
    agree(dtype, x.shape(), tolerance(dtype, width), [&](Backend& b, Tensor& out) {
      b.head_norm_rope(
          {.x = x, .out = out, .weight = norm ? &weight : nullptr, .style = style, .cos = &cos, .sin = &sin});
    });
  });
}

TEST(KernelProperties, CopiesOfAnyView) {
  expect_property([] {
    const DType from = any_dtype(), to = any_dtype();
    Random random(static_cast<uint64_t>(any(0, 1000)));
    Tensor view = random.tensor(from, {any(1, 6), any(1, 7), any(1, 40)});
    view = view.transpose(static_cast<int>(any(0, 2)), static_cast<int>(any(0, 2)));
    const int axis = static_cast<int>(any(0, 2));
    const int64_t begin = any(0, view.dim(axis) - 1);
    view = view.slice(axis, begin, view.dim(axis), any(1, 3));
    agree(to, view.shape(), {0, 0}, [&](Backend& b, Tensor& out) { b.copy({.from = view, .to = out}); });
  });
}

TEST(KernelProperties, NormsOfAnyWidth) {
  expect_property([] {
    const DType dtype = any_dtype();
    const Shape shape = {any(1, 2), any(1, 6), any(2, 300)};
    Random random(static_cast<uint64_t>(any(0, 1000)));
    const Tensor x = random.tensor(dtype, shape), gamma = random.tensor(dtype, {shape[2]});
    const Tensor scale = random.tensor(dtype, {shape[0], shape[2]}), shift = random.tensor(dtype, {shape[0], shape[2]});
    const Tolerance allowed = tolerance(dtype, shape[2], Operands::kAsStored, 8);
    agree(dtype, shape, allowed,
          [&](Backend& b, Tensor& out) { b.layer_norm({.x = x, .out = out, .scale = &scale, .shift = &shift}); });
    agree(dtype, shape, allowed, [&](Backend& b, Tensor& out) { b.rms_norm({.x = x, .weight = &gamma, .out = out}); });
    agree(dtype, shape, allowed,
          [&](Backend& b, Tensor& out) { b.channel_norm({.x = x, .gamma = gamma, .out = out, .silu = true}); });
  });
}

}  // namespace
}  // namespace lockstep::testing
