#include "backend/cases.h"
#include "base/error.h"

namespace lockstep::testing {
namespace {

constexpr Tolerance kExact = {0, 0};

TEST(CopyKernel, EveryPairOfDtypes) {
  Random random(101);
  const Tensor values = random.tensor(DType::kF32, {5, 37}, 50);
  for (int from = 0; from < kDTypeCount; ++from)
    for (int to = 0; to < kDTypeCount; ++to) {
      const Tensor source = values.to(static_cast<DType>(from));
      expect_agreement(static_cast<DType>(to), source.shape(), kExact,
                       label(static_cast<DType>(from)) + " to " + label(static_cast<DType>(to)),
                       [&](Backend& b, Tensor& out) { b.copy({.from = source, .to = out}); });
    }
}

TEST(CopyKernel, RoundingAndSpecialValuesOfSmallFloats) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    values.push_back(std::bit_cast<float>(bits << 16));
    values.push_back(std::bit_cast<float>(bits << 16 | 0x8000u));  // ties of bf16
    values.push_back(std::bit_cast<float>(bits << 16 | 0x7FFFu));
  }
  const Tensor x = Tensor::from<float>({static_cast<int64_t>(values.size())}, std::span<const float>(values));
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Tensor expected = Tensor::empty(dtype, x.shape()), got = Tensor::empty(dtype, x.shape());
    reference().copy({.from = x, .to = expected});
    fast().copy({.from = x, .to = got});
    const uint16_t* e = reinterpret_cast<const uint16_t*>(expected.strided_data());
    const uint16_t* g = reinterpret_cast<const uint16_t*>(got.strided_data());
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) continue;  // which NaN it is may differ
      ASSERT_EQ(e[i], g[i]) << label(dtype) << " of " << values[i];
    }
    expect_close(expected, got, kExact, "NaN stays NaN");
  }
}

TEST(CopyKernel, TurnedPictures) {
  Random random(104);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kU8, DType::kI64})
    for (const Shape& shape : {Shape{1, 33, 35, 40}, Shape{1, 8, 8, 96}, Shape{1, 1, 70, 3}, Shape{2, 5, 31, 33}}) {
      const Tensor nhwc = random.tensor(DType::kF32, shape, 50).to(dtype), nchw = nhwc.permute({0, 3, 1, 2});
      expect_agreement(dtype, nchw.shape(), kExact, label(dtype) + " turned " + to_string(shape),
                       [&](Backend& b, Tensor& out) { b.copy({.from = nchw, .to = out}); });
    }
}

TEST(CopyKernel, LayoutsAndCasts) {
  Random random(102);
  for (const DType from : {DType::kF32, DType::kBF16})
    for (const DType to : {DType::kF32, DType::kBF16, DType::kU8}) {
      const Tensor base = random.tensor(from, {3, 4, 5, 6}, 20, 30);
      const Tensor views[] = {base,
                              base.permute({0, 2, 3, 1}),
                              base.transpose(0, 3),
                              base.slice(3, 1, 5, 2),
                              base.select(1, 2),
                              base.slice(1, 0, 0),
                              base.unsqueeze(0).broadcast_to({2, 3, 4, 5, 6})};
      for (const Tensor& view : views) {
        expect_agreement(to, view.shape(), kExact, to_string(view.shape()),
                         [&](Backend& b, Tensor& out) { b.copy({.from = view, .to = out}); });
        if (view.rank() < 2) continue;
        Shape turned = view.shape();
        std::swap(turned.front(), turned.back());
        expect_agreement(to, turned, kExact, "into a view", [&](Backend& b, Tensor& out) {
          Tensor target = out.transpose(0, -1);
          b.copy({.from = view, .to = target});
        });
      }
    }
}

TEST(GatherKernel, RowsByIndex) {
  Random random(103);
  const Tensor table = random.tensor(DType::kBF16, {11, 37});
  const Tensor ids = Tensor::from<int64_t>({5}, {10, 0, 3, 3, 7});
  for (const DType dtype : {DType::kBF16, DType::kF32})
    expect_agreement(dtype, {5, 37}, kExact, "gather",
                     [&](Backend& b, Tensor& out) { b.gather({.table = table, .ids = ids, .out = out}); });
}

TEST(GatherKernel, RefusesRowsOutOfRange) {
  const Tensor table = Tensor::zeros(DType::kF32, {4, 2});
  Tensor out = Tensor::zeros(DType::kF32, {1, 2});
  for (const int64_t id : {int64_t{-1}, int64_t{4}}) {
    const Tensor ids = Tensor::from<int64_t>({1}, {id});
    EXPECT_THROW(fast().gather({.table = table, .ids = ids, .out = out}), Error);
  }
}

}  // namespace
}  // namespace lockstep::testing
