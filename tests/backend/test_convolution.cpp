#include "backend/cases.h"

namespace lockstep::testing {
namespace {

class ConvolutionKernel : public ByDType {};
LOCKSTEP_FOR_DTYPES(ConvolutionKernel);

struct Geometry {
  int64_t batch, height, width, inputs, outputs, kernel;
  int stride, top, left, bottom, right;
};

void expect_convolution(Random& random, DType dtype, const Geometry& g, bool bias, bool residual, bool prepare) {
  ConvWeight weight;
  weight.weight = random.tensor(dtype, {g.outputs, g.inputs, g.kernel, g.kernel}, 0.2f);
  if (bias) weight.bias = random.tensor(dtype, {g.outputs});
  if (prepare) fast().prepare(weight, dtype);
  const Tensor x = random.tensor(dtype, {g.batch, g.height, g.width, g.inputs});
  const int64_t high = (g.height + g.top + g.bottom - g.kernel) / g.stride + 1;
  const int64_t wide = (g.width + g.left + g.right - g.kernel) / g.stride + 1;
  const Shape shape = {g.batch, high, wide, g.outputs};
  const Tensor added = random.tensor(dtype, shape);
  expect_agreement(dtype, shape, tolerance(dtype, g.inputs * g.kernel * g.kernel),
                   std::to_string(g.inputs) + " to " + std::to_string(g.outputs) + " kernel " +
                       std::to_string(g.kernel) + (residual ? " with residual" : ""),
                   [&](Backend& b, Tensor& out) {
                     b.conv2d({.x = x,
                               .weight = weight,
                               .out = out,
                               .stride = g.stride,
                               .pad_top = g.top,
                               .pad_left = g.left,
                               .pad_bottom = g.bottom,
                               .pad_right = g.right,
                               .residual = residual ? &added : nullptr});
                   });
}

TEST_P(ConvolutionKernel, GeometriesOfTheVae) {
  Random random(81);
  for (const Geometry& g : {Geometry{1, 1, 9, 1, 1, 1, 1, 0, 0, 0, 0}, Geometry{1, 5, 7, 3, 16, 3, 1, 1, 1, 1, 1},
                            Geometry{2, 6, 4, 16, 3, 3, 1, 1, 1, 1, 1}, Geometry{1, 9, 11, 17, 13, 3, 1, 1, 1, 1, 1},
                            Geometry{1, 8, 8, 32, 48, 1, 1, 0, 0, 0, 0}, Geometry{1, 8, 10, 16, 16, 3, 2, 0, 0, 1, 1},
                            Geometry{1, 7, 5, 96, 64, 3, 1, 1, 1, 1, 1}, Geometry{1, 4, 4, 192, 96, 3, 1, 1, 1, 1, 1}})
    for (int use = 0; use < 8; ++use) expect_convolution(random, GetParam(), g, use & 1, use & 2, use & 4);
}

TEST_P(ConvolutionKernel, OneFilterAtManySizes) {
  Random random(82);
  ConvWeight weight;
  weight.weight = random.tensor(GetParam(), {24, 20, 3, 3}, 0.1f);
  fast().prepare(weight, GetParam());
  for (const int64_t size : {1, 2, 3, 8, 17}) {
    const Tensor x = random.tensor(GetParam(), {1, size, size, 20});
    expect_agreement(
        GetParam(), {1, size, size, 24}, tolerance(GetParam(), 180), std::to_string(size),
        [&](Backend& b, Tensor& out) {
          b.conv2d(
              {.x = x, .weight = weight, .out = out, .pad_top = 1, .pad_left = 1, .pad_bottom = 1, .pad_right = 1});
        });
  }
}

TEST_P(ConvolutionKernel, NanReachesItsNeighboursOnly) {
  Random random(83);
  ConvWeight weight;
  weight.weight = random.tensor(GetParam(), {16, 16, 3, 3});
  Tensor values = random.tensor(DType::kF32, {1, 6, 6, 16});
  values.mutable_data<float>()[(2 * 6 + 2) * 16 + 3] = NAN;
  const Tensor x = values.to(GetParam());
  expect_agreement(GetParam(), {1, 6, 6, 16}, tolerance(GetParam(), 144), "nan", [&](Backend& b, Tensor& out) {
    b.conv2d({.x = x, .weight = weight, .out = out, .pad_top = 1, .pad_left = 1, .pad_bottom = 1, .pad_right = 1});
  });
}

}  // namespace
}  // namespace lockstep::testing
