#include "backend/cases.h"

namespace lockstep::testing {
namespace {

class LinearKernel : public ByDType {};
LOCKSTEP_FOR_DTYPES(LinearKernel);

struct LinearDims {
  int64_t rows, n, k;
};

LinearWeight dense(Random& random, DType dtype, int64_t n, int64_t k, bool bias) {
  LinearWeight weight;
  weight.weight = random.tensor(dtype, {n, k}, 1 / std::sqrt(static_cast<float>(std::max<int64_t>(k, 1))));
  if (bias) weight.bias = random.tensor(dtype, {n});
  return weight;
}

LinearWeight quantised(Random& random, DType dtype, int64_t n, int64_t k, int bits, int group) {
  LinearWeight weight;
  weight.bits = bits;
  weight.group_size = group;
  weight.weight = Tensor::empty(DType::kU32, {n, k * bits / 32});
  for (int64_t i = 0; i < weight.weight.numel(); ++i) weight.weight.mutable_data<uint32_t>()[i] = random.bits();
  weight.scales = random.tensor(dtype, {n, k / group}, 0.01f, 0.02f);
  // Near the middle of the range, as quantisation makes them: a common offset of all weights would only measure how
  // well the sum of x cancels.
  const float middle = -0.02f * static_cast<float>((1 << bits) - 1) / 2;
  weight.biases = random.tensor(dtype, {n, k / group}, 0.1f, middle);
  return weight;
}

void expect_linear(const Tensor& x, LinearWeight weight, bool prepare, Tolerance allowed, const std::string& what) {
  if (prepare) fast().prepare(weight, x.dtype());
  Shape shape = x.shape();
  shape.back() = weight.outputs();
  expect_agreement(x.dtype(), shape, allowed, what,
                   [&](Backend& b, Tensor& out) { b.linear({.x = x, .weight = weight, .out = out}); });
}

TEST_P(LinearKernel, OddShapes) {
  Random random(1);
  for (const LinearDims d :
       {LinearDims{1, 1, 1}, LinearDims{1, 64, 64}, LinearDims{2, 3, 5}, LinearDims{7, 65, 33}, LinearDims{6, 127, 31},
        LinearDims{13, 66, 257}, LinearDims{97, 48, 96}, LinearDims{100, 131, 1}, LinearDims{5, 17, 4099},
        LinearDims{3, 5, 20011}, LinearDims{0, 8, 8}, LinearDims{4, 0, 8}, LinearDims{4, 9, 0}})
    for (const bool prepare : {false, true})
      for (const bool bias : {false, true})
        expect_linear(random.tensor(GetParam(), {d.rows, d.k}), dense(random, GetParam(), d.n, d.k, bias), prepare,
                      tolerance(GetParam(), d.k),
                      "M " + std::to_string(d.rows) + " N " + std::to_string(d.n) + " K " + std::to_string(d.k) +
                          (prepare ? " prepared" : ""));
}

TEST_P(LinearKernel, LargeWeightsTakeTheLibrarysPath) {
  Random random(2);
  for (const LinearDims d : {LinearDims{1, 750, 701}, LinearDims{19, 500, 1051}})
    expect_linear(random.tensor(GetParam(), {d.rows, d.k}), dense(random, GetParam(), d.n, d.k, true), true,
                  tolerance(GetParam(), d.k), "large " + std::to_string(d.rows));
}

TEST_P(LinearKernel, Epilogues) {
  Random random(3);
  const int64_t batch = 2, rows = 5, n = 67, k = 96;
  const Tensor x = random.tensor(GetParam(), {batch, rows, k});
  const Tensor multiply = random.tensor(GetParam(), {batch, rows, n});
  const Tensor residual = random.tensor(GetParam(), {batch, rows, n});
  const Tensor gate = random.tensor(GetParam(), {batch, n});
  for (const int64_t width : {n, int64_t{5600}})  // our panels, then oneDNN
    for (const Activation activation :
         {Activation::kNone, Activation::kGeluTanh, Activation::kGeluErf, Activation::kSilu}) {
      if (width != n && activation != Activation::kGeluTanh) continue;
      LinearWeight weight = dense(random, GetParam(), width, k, true);
      fast().prepare(weight, GetParam());
      const Tensor wide_m = width == n ? multiply : random.tensor(GetParam(), {batch, rows, width});
      const Tensor wide_r = width == n ? residual : random.tensor(GetParam(), {batch, rows, width});
      const Tensor wide_g = width == n ? gate : random.tensor(GetParam(), {batch, width});
      for (int use = 0; use < 8; ++use) {
        if ((use & 4) && !(use & 2)) continue;  // a gate needs a residual
        expect_agreement(GetParam(), {batch, rows, width}, tolerance(GetParam(), k), "epilogue " + std::to_string(use),
                         [&](Backend& b, Tensor& out) {
                           b.linear({.x = x,
                                     .weight = weight,
                                     .out = out,
                                     .activation = activation,
                                     .multiply = use & 1 ? &wide_m : nullptr,
                                     .residual = use & 2 ? &wide_r : nullptr,
                                     .gate = use & 4 ? &wide_g : nullptr});
                         });
      }
    }
}

TEST_P(LinearKernel, ResidualInPlace) {
  Random random(4);
  LinearWeight weight = dense(random, GetParam(), 70, 64, true);
  fast().prepare(weight, GetParam());
  const Tensor x = random.tensor(GetParam(), {9, 64}), start = random.tensor(GetParam(), {9, 70});
  Tensor expected = start.clone(), got = start.clone();
  reference().linear({.x = x, .weight = weight, .out = expected, .residual = &expected});
  fast().linear({.x = x, .weight = weight, .out = got, .residual = &got});
  expect_close(expected, got, tolerance(GetParam(), 64), "in place");
}

TEST_P(LinearKernel, StridedRows) {
  Random random(5);
  const Tensor wide = random.tensor(GetParam(), {2, 7, 3, 40});
  for (const int64_t n : {int64_t{33}, int64_t{13200}}) {
    LinearWeight weight = dense(random, GetParam(), n, 40, false);
    fast().prepare(weight, GetParam());
    expect_agreement(GetParam(), {2, 7, n}, tolerance(GetParam(), 40), "strided", [&](Backend& b, Tensor& out) {
      const Tensor x = wide.select(2, 1);
      b.linear({.x = x, .weight = weight, .out = out});
    });
    expect_agreement(GetParam(), {7, 2, n}, tolerance(GetParam(), 40), "permuted", [&](Backend& b, Tensor& out) {
      const Tensor x = wide.select(2, 0).transpose(0, 1);
      b.linear({.x = x, .weight = weight, .out = out});
    });
  }
}

TEST_P(LinearKernel, QuantisedWeights) {
  Random random(6);
  for (const int bits : {2, 3, 4, 6, 8})
    for (const int group : {32, 64, 128})
      for (const LinearDims d :
           {LinearDims{1, 5, 128}, LinearDims{7, 64, 256}, LinearDims{29, 131, 384}, LinearDims{101, 300, 1280}})
        expect_linear(random.tensor(GetParam(), {d.rows, d.k}),
                      quantised(random, GetParam() == DType::kF16 ? DType::kF16 : GetParam(), d.n, d.k, bits, group),
                      d.rows != 7, tolerance(GetParam(), d.k, Operands::kRounded),
                      "bits " + std::to_string(bits) + " group " + std::to_string(group));
}

TEST_P(LinearKernel, QuantisedWeightsWithWhatFollowsThem) {
  Random random(12);
  for (const int64_t rows : {int64_t{9}, int64_t{60}, int64_t{120}}) {
    LinearWeight weight = quantised(random, GetParam(), 192, 512, 4, 64);
    weight.bias = random.tensor(GetParam(), {192});
    fast().prepare(weight, GetParam());
    const Tensor x = random.tensor(GetParam(), {rows, 512}), residual = random.tensor(GetParam(), {rows, 192});
    const Tolerance allowed = tolerance(GetParam(), 512, Operands::kRounded);
    expect_agreement(GetParam(), {rows, 192}, allowed, "gelu", [&](Backend& b, Tensor& out) {
      b.linear({.x = x, .weight = weight, .out = out, .activation = Activation::kGeluTanh});
    });
    expect_agreement(GetParam(), {rows, 192}, allowed, "residual", [&](Backend& b, Tensor& out) {
      b.linear({.x = x, .weight = weight, .out = out, .residual = &residual});
    });
    expect_agreement(GetParam(), {rows, 192}, allowed, "into rows that are apart", [&](Backend& b, Tensor& out) {
      Tensor wide = Tensor::zeros(out.dtype(), {rows, 400}), part = wide.slice(1, 0, 192);
      b.linear({.x = x, .weight = weight, .out = part});
      b.copy({.from = part, .to = out});
    });
  }
}

TEST_P(LinearKernel, QuantisedWeightsBeyondOnePanelBlock) {
  Random random(7);
  expect_linear(random.tensor(GetParam(), {13, 4480}), quantised(random, GetParam(), 70, 4480, 4, 64), true,
                tolerance(GetParam(), 4480, Operands::kRounded), "long K");
}

TEST_P(LinearKernel, NanAndInfinityStayInTheirRows) {
  Random random(8);
  for (const int64_t n : {int64_t{20}, int64_t{8200}}) {
    LinearWeight weight = dense(random, GetParam(), n, 64, true);
    fast().prepare(weight, GetParam());
    Tensor x = random.tensor(DType::kF32, {5, 64});
    x.mutable_data<float>()[64 + 3] = NAN;
    x.mutable_data<float>()[3 * 64 + 5] = INFINITY;
    expect_linear(x.to(GetParam()), weight, false, tolerance(GetParam(), 64), "special values");
  }
}

TEST(LinearAccuracy, FloatsAgreeToOnePartInAMillion) {
  Random random(9);
  const Tensor x = random.tensor(DType::kF32, {24, 3072});
  for (const int64_t n : {int64_t{50}, int64_t{172}}) {
    LinearWeight weight = dense(random, DType::kF32, n, 3072, true);
    fast().prepare(weight, DType::kF32);
    expect_agreement(DType::kF32, {24, n}, {1e-6, 1e-5}, "f32", [&](Backend& b, Tensor& out) {
      b.linear({.x = x, .weight = weight, .out = out, .activation = Activation::kGeluTanh});
    });
  }
}

TEST(LinearMixed, WeightsOfAnotherDtype) {
  Random random(10);
  for (const DType x_dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const DType w_dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      LinearWeight weight = dense(random, w_dtype, 50, 70, true);
      const DType coarse = x_dtype == DType::kBF16 ? DType::kBF16 : x_dtype;
      for (const bool prepare : {false, true})
        expect_linear(random.tensor(x_dtype, {6, 70}), weight, prepare,
                      tolerance(coarse, 70, x_dtype == w_dtype ? Operands::kAsStored : Operands::kRounded),
                      label(x_dtype) + " x " + label(w_dtype));
    }
}

TEST(LinearThreads, OneAndTwoThreadsGiveTheSameBitsEachTime) {
  if (on_a_device()) GTEST_SKIP() << "a device has no threads of ours";
  Random random(11);
  const Tensor x = random.tensor(DType::kBF16, {77, 640});
  const LinearWeight weight = quantised(random, DType::kBF16, 640, 640, 4, 64);
  const std::unique_ptr<Backend> one = make_backend("cpu", 1);
  Tensor first = Tensor::empty(DType::kBF16, {77, 640}), second = first.clone(), single = first.clone();
  fast().linear({.x = x, .weight = weight, .out = first});
  fast().linear({.x = x, .weight = weight, .out = second});
  one->linear({.x = x, .weight = weight, .out = single});
  EXPECT_TRUE(std::ranges::equal(first.contiguous_bytes(), second.contiguous_bytes()));
  EXPECT_TRUE(std::ranges::equal(first.contiguous_bytes(), single.contiguous_bytes()));
}

}  // namespace
}  // namespace lockstep::testing
