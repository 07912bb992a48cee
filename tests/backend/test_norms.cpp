#include <cstring>

#include "backend/cases.h"

namespace lockstep::testing {
namespace {

class NormKernel : public ByDType {};
LOCKSTEP_FOR_DTYPES(NormKernel);

constexpr int64_t kWidths[] = {1, 2, 7, 15, 16, 17, 31, 33, 64, 67, 128, 130, 515};

TEST_P(NormKernel, RmsNorm) {
  Random random(41);
  for (const int64_t width : kWidths) {
    const Tensor x = random.tensor(GetParam(), {2, 3, width}, 3), weight = random.tensor(GetParam(), {width});
    for (const Tensor* w : {static_cast<const Tensor*>(nullptr), &weight})
      expect_agreement(GetParam(), x.shape(), tolerance(GetParam(), width), "rms " + std::to_string(width),
                       [&](Backend& b, Tensor& out) { b.rms_norm({.x = x, .weight = w, .out = out}); });
  }
}

TEST_P(NormKernel, LayerNormWithEveryOperand) {
  Random random(42);
  for (const int64_t width : kWidths) {
    const Tensor x = random.tensor(GetParam(), {2, 5, width}, 2, 1);
    const Tensor weight = random.tensor(GetParam(), {width}), bias = random.tensor(GetParam(), {width});
    const Tensor scale = random.tensor(GetParam(), {2, width}), shift = random.tensor(GetParam(), {2, width});
    for (int use = 0; use < 4; ++use)
      expect_agreement(GetParam(), x.shape(), tolerance(GetParam(), width, Operands::kAsStored, 2),
                       "layer " + std::to_string(width) + " " + std::to_string(use), [&](Backend& b, Tensor& out) {
                         b.layer_norm({.x = x,
                                       .out = out,
                                       .weight = use & 1 ? &weight : nullptr,
                                       .bias = use & 1 ? &bias : nullptr,
                                       .scale = use & 2 ? &scale : nullptr,
                                       .shift = use & 2 ? &shift : nullptr});
                       });
  }
}

TEST_P(NormKernel, HeadNormAndRotation) {
  Random random(43);
  for (const int64_t width : {2, 6, 16, 30, 34, 64, 128, 512})
    for (const RopeStyle style : {RopeStyle::kNone, RopeStyle::kInterleaved, RopeStyle::kHalfSplit})
      for (const bool norm : {false, true}) {
        const Tensor x = random.tensor(GetParam(), {2, 5, 3, width}, 2), weight = random.tensor(GetParam(), {width});
        const Tensor cos = random.tensor(DType::kF32, {5, width / 2}), sin = random.tensor(DType::kF32, {5, width / 2});
        expect_agreement(
            GetParam(), x.shape(), tolerance(GetParam(), width), "head " + std::to_string(width),
            [&](Backend& b, Tensor& out) {
              b.head_norm_rope(
                  {.x = x, .out = out, .weight = norm ? &weight : nullptr, .style = style, .cos = &cos, .sin = &sin});
            });
      }
}

// So large that results go past the caches, in whole lines: the second half of such a head begins inside one. The same
// heads in parts that stay inside the caches must have the same bits.
TEST_P(NormKernel, HalfSplitRotationBeyondTheCaches) {
  Random random(47);
  const int64_t width = GetParam() == DType::kF32 ? 80 : 96, heads = 16, tokens = 6000;
  const Tensor x = random.tensor(GetParam(), {1, tokens, heads, width});
  const Tensor cos = random.tensor(DType::kF32, {tokens, width / 2}),
               sin = random.tensor(DType::kF32, {tokens, width / 2});
  ASSERT_GE(x.bytes(), size_t{16} << 20);
  Tensor whole = Tensor::empty(GetParam(), x.shape()), parts = Tensor::empty(GetParam(), x.shape());
  const auto rotate = [&](int64_t begin, int64_t end, Tensor& out) {
    const Tensor some_cos = cos.slice(0, begin, end), some_sin = sin.slice(0, begin, end);
    Tensor to = out.slice(1, begin, end);
    fast().head_norm_rope(
        {.x = x.slice(1, begin, end), .out = to, .style = RopeStyle::kHalfSplit, .cos = &some_cos, .sin = &some_sin});
  };
  rotate(0, tokens, whole);
  for (int64_t begin = 0; begin < tokens; begin += 1000) rotate(begin, begin + 1000, parts);
  EXPECT_EQ(std::memcmp(whole.strided_data(), parts.strided_data(), whole.bytes()), 0);
}

TEST_P(NormKernel, HeadNormInPlaceOnAView) {
  Random random(44);
  const Tensor start = random.tensor(GetParam(), {1, 6, 3, 2, 32}), weight = random.tensor(GetParam(), {32});
  const Tensor cos = random.tensor(DType::kF32, {6, 16}), sin = random.tensor(DType::kF32, {6, 16});
  Tensor expected = start.clone(), got = start.clone();
  for (auto [backend, whole] : {std::pair<Backend*, Tensor*>{&reference(), &expected}, {&fast(), &got}}) {
    Tensor view = whole->select(2, 1);
    backend->head_norm_rope(
        {.x = view, .out = view, .weight = &weight, .style = RopeStyle::kInterleaved, .cos = &cos, .sin = &sin});
  }
  expect_close(expected, got, tolerance(GetParam(), 32), "in place");
}

TEST_P(NormKernel, ChannelNorm) {
  Random random(45);
  for (const int64_t channels : kWidths)
    for (const bool silu : {false, true}) {
      Tensor x = random.tensor(GetParam(), {1, 3, 3, channels});
      Tensor zero = x.slice(1, 0, 1);
      copy_strided(Tensor::zeros(GetParam(), zero.shape()), zero);  // a zero pixel stays zero
      const Tensor gamma = random.tensor(GetParam(), {channels});
      expect_agreement(
          GetParam(), x.shape(), tolerance(GetParam(), channels), "channel " + std::to_string(channels),
          [&](Backend& b, Tensor& out) { b.channel_norm({.x = x, .gamma = gamma, .out = out, .silu = silu}); });
    }
}

TEST_P(NormKernel, Guidance) {
  Random random(47);
  for (const int64_t width : kWidths)
    for (const bool rescale : {false, true}) {
      const Tensor cond = random.tensor(GetParam(), {2, 3, width}), uncond = random.tensor(GetParam(), {2, 3, width});
      expect_agreement(GetParam(), cond.shape(), tolerance(GetParam(), width), "guidance " + std::to_string(width),
                       [&](Backend& b, Tensor& out) {
                         b.guidance({.cond = cond, .uncond = uncond, .out = out, .scale = 4, .rescale = rescale});
                       });
    }
}

TEST_P(NormKernel, NanAndInfinityStayInTheirRow) {
  Random random(48);
  Tensor values = random.tensor(DType::kF32, {4, 37});
  values.mutable_data<float>()[37 + 5] = NAN;
  values.mutable_data<float>()[2 * 37 + 36] = INFINITY;
  const Tensor x = values.to(GetParam()), gamma = random.tensor(GetParam(), {37});
  const Tensor x3 = x.unsqueeze(0);
  const Tolerance allowed = tolerance(GetParam(), 37);
  expect_agreement(GetParam(), x.shape(), allowed, "rms",
                   [&](Backend& b, Tensor& out) { b.rms_norm({.x = x, .weight = &gamma, .out = out}); });
  expect_agreement(GetParam(), x3.shape(), allowed, "layer",
                   [&](Backend& b, Tensor& out) { b.layer_norm({.x = x3, .out = out}); });
  expect_agreement(GetParam(), x.shape(), allowed, "channel",
                   [&](Backend& b, Tensor& out) { b.channel_norm({.x = x, .gamma = gamma, .out = out}); });
}

TEST(NormMixed, OutputOfAnotherDtype) {
  Random random(49);
  const Tensor x = random.tensor(DType::kBF16, {3, 50}), weight = random.tensor(DType::kF32, {50});
  expect_agreement(DType::kF32, x.shape(), tolerance(DType::kF32, 50), "bf16 to f32",
                   [&](Backend& b, Tensor& out) { b.rms_norm({.x = x, .weight = &weight, .out = out}); });
}

}  // namespace
}  // namespace lockstep::testing
