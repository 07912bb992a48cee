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
