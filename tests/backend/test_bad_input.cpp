#include "backend/cases.h"
#include "backend/quantize.h"
#include "base/error.h"

namespace lockstep::testing {
namespace {

// What went wrong, or "no error".
template <typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

LinearWeight four_bits(int64_t n, int64_t k) {
  LinearWeight weight;
  weight.weight = Random(1).tensor(DType::kF32, {n, k});
  quantize_in_place(weight, 4, 64);
  return weight;
}

TEST(BadInput, NullStorage) {
  Tensor none, out = Tensor::zeros(DType::kF32, {2, 2});
  EXPECT_NE(message_of([&] { fast().rms_norm({.x = none, .out = out}); }).find("without storage"), std::string::npos);
}

TEST(BadInput, MisalignedStorage) {
  const Tensor bytes = Tensor::zeros(DType::kU8, {64});
  const std::string message = message_of([&] { Tensor::wrap(bytes.strided_data() + 1, DType::kF32, {8}, nullptr); });
  EXPECT_NE(message.find("not aligned"), std::string::npos) << message;
}

// The CPU refuses what a model never gives it; a device brings it into order first.
TEST(BadInput, StridedLastAxis) {
  const Tensor x = Random(4).tensor(DType::kF32, {4, 8}).transpose(0, 1);
  Tensor out = Tensor::zeros(DType::kF32, {8, 4});
  if (on_a_device()) {
    Tensor expected = out.clone();
    reference().rms_norm({.x = x.contiguous(), .out = expected});
    fast().rms_norm({.x = x, .out = out});
    return expect_close(expected, out, tolerance(DType::kF32, 4), "strided");
  }
  EXPECT_NE(message_of([&] { fast().rms_norm({.x = x, .out = out}); }).find("last axis must be contiguous"),
            std::string::npos);
}

TEST(BadInput, QuantisedWeightsThatDoNotFit) {
  const Tensor x = Tensor::zeros(DType::kF32, {1, 128});
  Tensor out = Tensor::zeros(DType::kF32, {1, 4});
  const auto run = [&](const LinearWeight& weight) {
    return message_of([&] { fast().linear({.x = x, .weight = weight, .out = out}); });
  };
  LinearWeight weight = four_bits(4, 128);
  EXPECT_EQ(run(weight), "no error");
  weight.bits = 5;
  EXPECT_NE(run(weight).find("expected 2, 3, 4, 6 or 8, got 5"), std::string::npos);
  weight = four_bits(4, 128);
  weight.group_size = 16;
  EXPECT_NE(run(weight).find("expected 32, 64 or 128, got 16"), std::string::npos);
  weight = four_bits(4, 128);
  weight.scales = Tensor();
  EXPECT_NE(run(weight).find("scales and biases"), std::string::npos);
  weight = four_bits(4, 128);
  weight.biases = Tensor::zeros(DType::kF32, {4, 1});
  EXPECT_NE(run(weight).find("scales and biases"), std::string::npos);
  weight = four_bits(4, 128);
  weight.biases = Tensor::zeros(DType::kI32, weight.biases.shape());
  EXPECT_NE(run(weight).find("scales and biases"), std::string::npos);
  weight = four_bits(4, 128);
  weight.weight = Tensor::zeros(DType::kU32, {4, 15});  // 120 inputs: no whole groups
  EXPECT_NE(run(weight).find("not a multiple of the group size"), std::string::npos);
  weight = four_bits(4, 128);
  weight.weight = Tensor::zeros(DType::kU32, {64});
  EXPECT_NE(run(weight).find("two axes"), std::string::npos);
  weight = four_bits(4, 128);
  weight.weight = Tensor::zeros(DType::kF32, {4, 16});
  EXPECT_NE(run(weight).find("32-bit words"), std::string::npos);
}

TEST(BadInput, WidthsAndDtypesOfWeights) {
  const Tensor x = Tensor::zeros(DType::kF32, {2, 8});
  Tensor out = Tensor::zeros(DType::kF32, {2, 4});
  LinearWeight weight;
  weight.weight = Tensor::zeros(DType::kI32, {4, 8});
  EXPECT_NE(message_of([&] { fast().linear({.x = x, .weight = weight, .out = out}); }).find("weight dtype"),
            std::string::npos);
  weight.weight = Tensor::zeros(DType::kF32, {4, 9});
  EXPECT_NE(message_of([&] { fast().linear({.x = x, .weight = weight, .out = out}); }).find("input width"),
            std::string::npos);
}

TEST(BadInput, Rotations) {
  const Tensor x = Tensor::zeros(DType::kF32, {1, 1, 1, 1024}), odd = Tensor::zeros(DType::kF32, {1, 1, 1, 7});
  Tensor out = x.clone(), odd_out = odd.clone();
  EXPECT_NE(message_of([&] { fast().head_norm_rope({.x = x, .out = out}); }).find("at most 512"), std::string::npos);
  EXPECT_NE(message_of([&] {
              fast().head_norm_rope({.x = odd, .out = odd_out, .style = RopeStyle::kInterleaved});
            }).find("even head width"),
            std::string::npos);
}

TEST(BadInput, CopiesBetweenShapes) {
  const Tensor x = Tensor::zeros(DType::kF32, {2, 3});
  Tensor out = Tensor::zeros(DType::kF32, {3, 2});
  EXPECT_NE(message_of([&] { fast().copy({.from = x, .to = out}); }).find("shapes differ"), std::string::npos);
}

TEST(Quantise, AWeightThatDoesNotDivideStaysDense) {
  LinearWeight weight;
  weight.weight = Random(2).tensor(DType::kF32, {4, 100});
  EXPECT_FALSE(quantize_in_place(weight, 4, 64));
  EXPECT_EQ(weight.bits, 0);
}

TEST(Quantise, TheWayBackIsCloseAndItsEndsAreExact) {
  Random random(3);
  for (const int bits : kQuantiseBits)
    for (const int group : kQuantiseGroups) {
      const Tensor dense = random.tensor(DType::kF32, {6, 256});
      const Tensor back = dequantize_affine(quantize_affine(dense, bits, group), bits, group);
      const float* a = dense.data<float>();
      const float* b = back.data<float>();
      for (int64_t at = 0; at < dense.numel(); at += group) {
        const auto [low, high] = std::minmax_element(a + at, a + at + group);
        // The step that fits the range, stretched so that the far end is a whole number of steps from zero.
        const float step = (*high - *low) / static_cast<float>((1 << bits) - 1);
        for (int i = 0; i < group; ++i) EXPECT_LE(std::fabs(a[at + i] - b[at + i]), step * 1.01f) << bits;
        const int64_t far = (std::fabs(*low) > std::fabs(*high) ? low : high) - a;
        EXPECT_FLOAT_EQ(a[far], b[far]);
      }
    }
}

}  // namespace
}  // namespace lockstep::testing
