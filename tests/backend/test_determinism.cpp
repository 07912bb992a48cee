// The same input gives the same bits on the same machine and thread count; and, for all but oneDNN's products, whatever
// the thread count (docs/performance.md).
#include <cstring>
#include <functional>

#include "backend/cases.h"

namespace lockstep::testing {
namespace {

class Determinism : public ByDType {
 protected:
  using Work = std::function<void(Backend&, Tensor&)>;

  static bool same_bits(const Tensor& a, const Tensor& b) {
    return std::ranges::equal(a.contiguous_bytes(), b.contiguous_bytes());
  }

  // `across`: the result must not depend on the thread count either, where there are threads.
  static void expect_same(const Shape& shape, DType dtype, bool across, const std::string& what, const Work& work) {
    Tensor first = Tensor::zeros(dtype, shape), single = Tensor::zeros(dtype, shape);
    work(fast(), first);
    for (int again = 0; again < 3; ++again) {
      Tensor repeat = Tensor::zeros(dtype, shape);
      work(fast(), repeat);
      EXPECT_TRUE(same_bits(first, repeat)) << what << ", again";
    }
    if (on_a_device()) return;
    const std::unique_ptr<Backend> one = make_backend("cpu", 1);
    work(*one, single);
    Tensor repeat = Tensor::zeros(dtype, shape);
    work(*one, repeat);
    EXPECT_TRUE(same_bits(single, repeat)) << what << ", one thread again";
    EXPECT_TRUE(!across || same_bits(first, single)) << what << ", one thread against all";
  }
};
LOCKSTEP_FOR_DTYPES(Determinism);

// Shapes large enough that the work is really shared among threads.
TEST_P(Determinism, Products) {
  Random random(121);
  const DType dtype = GetParam();
  const Tensor x = random.tensor(dtype, {130, 1024});
  for (const int64_t n : {int64_t{192}, int64_t{1088}}) {  // our panels, then oneDNN
    LinearWeight weight;
    weight.weight = random.tensor(dtype, {n, 1024}, 0.03f);
    weight.bias = random.tensor(dtype, {n});
    fast().prepare(weight, dtype);
    expect_same({130, n}, dtype, n == 192, "linear " + std::to_string(n), [&](Backend& b, Tensor& out) {
      b.linear({.x = x, .weight = weight, .out = out, .activation = Activation::kGeluTanh});
    });
  }
  ConvWeight filter;
  filter.weight = random.tensor(dtype, {48, 32, 3, 3}, 0.1f);
  fast().prepare(filter, dtype);
  const Tensor image = random.tensor(dtype, {1, 40, 40, 32});
  expect_same({1, 40, 40, 48}, dtype, false, "conv2d", [&](Backend& b, Tensor& out) {
    b.conv2d({.x = image, .weight = filter, .out = out, .pad_top = 1, .pad_left = 1, .pad_bottom = 1, .pad_right = 1});
  });
}

TEST_P(Determinism, Attention) {
  Random random(122);
  const DType dtype = GetParam();
  const Tensor q = random.tensor(dtype, {1, 400, 4, 64}), k = random.tensor(dtype, {1, 400, 2, 64});
  const Tensor v = random.tensor(dtype, {1, 400, 2, 64});
  expect_same(q.shape(), dtype, true, "attention", [&](Backend& b, Tensor& out) {
    b.attention({.q = q, .k = k, .v = v, .out = out, .scale = 0.125f, .causal = true});
  });
}

TEST_P(Determinism, RowKernels) {
  Random random(123);
  const DType dtype = GetParam();
  const Shape shape = {2, 300, 640};
  const Tensor x = random.tensor(dtype, shape), y = random.tensor(dtype, shape), line = random.tensor(dtype, {640});
  const Tensor lines = random.tensor(dtype, {2, 640}), turn = random.tensor(DType::kF32, {300, 32});
  const auto same = [&](const std::string& what, const Work& work) { expect_same(shape, dtype, true, what, work); };
  same("rms_norm", [&](Backend& b, Tensor& out) { b.rms_norm({.x = x, .weight = &line, .out = out}); });
  same("layer_norm",
       [&](Backend& b, Tensor& out) { b.layer_norm({.x = x, .out = out, .scale = &lines, .shift = &lines}); });
  same("add_gated", [&](Backend& b, Tensor& out) { b.add_gated({.x = x, .gate = lines, .y = y, .out = out}); });
  same("channel_norm",
       [&](Backend& b, Tensor& out) { b.channel_norm({.x = x, .gamma = line, .out = out, .silu = true}); });
  same("guidance", [&](Backend& b, Tensor& out) { b.guidance({.cond = x, .uncond = y, .out = out, .scale = 4}); });
  same("unary", [&](Backend& b, Tensor& out) { b.unary({.op = UnaryOp::kGeluErf, .x = x, .out = out}); });
  same("binary", [&](Backend& b, Tensor& out) { b.binary({.op = BinaryOp::kDivide, .a = x, .b = y, .out = out}); });
  const Tensor heads = x.reshape({2, 300, 10, 64}), weight = random.tensor(dtype, {64});
  expect_same(heads.shape(), dtype, true, "head_norm_rope", [&](Backend& b, Tensor& out) {
    b.head_norm_rope(
        {.x = heads, .out = out, .weight = &weight, .style = RopeStyle::kInterleaved, .cos = &turn, .sin = &turn});
  });
}

}  // namespace
}  // namespace lockstep::testing
