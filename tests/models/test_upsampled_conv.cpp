// The upsampler without its doubled picture: the same numbers as doubling first and convolving then.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "io/safetensors.h"
#include "io/temp_folder.h"
#include "nn/upsampled_conv.h"
#include "support/golden_recording.h"

namespace lockstep {
namespace {

// f32 [B, H, W, C] → [B, 2H, 2W, C]: every pixel four times.
Tensor doubled(const Tensor& x) {
  Tensor out = Tensor::empty(DType::kF32, {x.dim(0), 2 * x.dim(1), 2 * x.dim(2), x.dim(3)});
  const int64_t width = 2 * x.dim(2), channels = x.dim(3), lines = x.dim(0) * 2 * x.dim(1);
  for (int64_t line = 0; line < lines; ++line)
    for (int64_t i = 0; i < width * channels; ++i)
      out.mutable_data<float>()[line * width * channels + i] =
          x.data<float>()[(line / 2 * (width / 2) + i / channels / 2) * channels + i % channels];
  return out;
}

class UpsampledConvTest : public TempFolder {
 protected:
  Tensor random_tensor(const Shape& shape) {
    Tensor values = Tensor::empty(DType::kF32, shape);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < values.numel(); ++i) values.mutable_data<float>()[i] = normal(engine_);
    return values;
  }

  std::minstd_rand engine_{7};
};

TEST_F(UpsampledConvTest, EqualsDoublingAndThenConvolving) {
  struct Case {
    int64_t batch, height, width, inputs, outputs;
  };
  for (const Case& c : {Case{1, 1, 1, 1, 1}, Case{1, 3, 5, 5, 7}, Case{2, 4, 1, 8, 3}, Case{1, 1, 6, 16, 16},
                        Case{1, 17, 13, 33, 20}}) {
    const Tensor weight = random_tensor({c.outputs, c.inputs, 3, 3}), bias = random_tensor({c.outputs});
    write_safetensors(file("model.safetensors"), {{"up.weight", weight}, {"up.bias", bias}});
    const Tensor x = random_tensor({c.batch, c.height, c.width, c.inputs});
    const Checkpoint checkpoint = Checkpoint::open(file("model.safetensors"));
    const auto judge = make_backend("reference");
    ConvWeight plain{.weight = weight, .bias = bias, .prepared = {}};
    const Tensor expected = ops::conv2d(*judge, doubled(x), plain, 1, {1, 1, 1, 1});
    for (const char* name : {"reference", "cpu"}) {
      const auto backend = make_backend(name);
      const nn::Weights weights(checkpoint, *backend, {.dtype = DType::kF32});
      const nn::UpsampledConv conv(weights, "up", c.inputs, c.outputs);
      EXPECT_NO_THROW(weights.finish("up"));
      const nn::Execution execution{.backend = *backend};
      const Tensor out = conv.forward(x, nn::Ctx(execution, "up"));
      ASSERT_EQ(out.shape(), expected.shape());
      EXPECT_LT(testing::relative_l2(out, expected), 1e-6) << name << " " << to_string(x.shape());
    }
  }
}

// Rounded: the picture given (exact here), the sums of weights and the result, half a bf16 step of 2^-8 each.
TEST_F(UpsampledConvTest, InBf16SumsOfWeightsAreRoundedOnce) {
  const int64_t inputs = 48, outputs = 32;
  const Tensor weight = random_tensor({outputs, inputs, 3, 3}).to(DType::kBF16);
  const Tensor bias = random_tensor({outputs}).to(DType::kBF16);
  write_safetensors(file("model.safetensors"), {{"up.weight", weight}, {"up.bias", bias}});
  const Tensor x = random_tensor({1, 9, 11, inputs}).to(DType::kBF16);
  const Checkpoint checkpoint = Checkpoint::open(file("model.safetensors"));
  const auto judge = make_backend("reference");
  const ConvWeight plain{.weight = weight.to(DType::kF32), .bias = bias.to(DType::kF32), .prepared = {}};
  const Tensor exact = ops::conv2d(*judge, doubled(x.to(DType::kF32)), plain, 1, {1, 1, 1, 1});
  for (const char* name : {"reference", "cpu"}) {
    const auto backend = make_backend(name);
    const nn::Weights weights(checkpoint, *backend, {.dtype = DType::kBF16});
    const nn::UpsampledConv conv(weights, "up", inputs, outputs);
    const nn::Execution execution{.backend = *backend};
    const Tensor out = conv.forward(x, nn::Ctx(execution, "up"));
    ASSERT_EQ(out.dtype(), DType::kBF16);
    EXPECT_LT(testing::relative_l2(out, exact), 0x1p-9 * std::sqrt(2.0)) << name;
  }
}

TEST_F(UpsampledConvTest, AWeightOfAnotherShapeIsListed) {
  write_safetensors(file("model.safetensors"),
                    {{"up.weight", random_tensor({4, 4, 2, 2})}, {"up.bias", random_tensor({4})}});
  const Checkpoint checkpoint = Checkpoint::open(file("model.safetensors"));
  const auto backend = make_backend("reference");
  const nn::Weights weights(checkpoint, *backend, {.dtype = DType::kF32});
  const nn::UpsampledConv conv(weights, "up", 4, 4);
  EXPECT_FALSE(conv.defined());
  EXPECT_NE(error_of([&] { weights.finish("up"); }).find("misshapen: up.weight"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
