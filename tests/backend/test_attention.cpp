#include "backend/cases.h"

namespace lockstep::testing {
namespace {

class AttentionKernel : public ByDType {};
LOCKSTEP_FOR_DTYPES(AttentionKernel);

struct AttentionDims {
  int64_t batch, queries, keys, heads, groups, width;
};

struct Options {
  bool causal = false;
  const Tensor* key_mask = nullptr;
  std::span<const int64_t> segment_ends = {};
  float scale = 0.125f;
};

void expect_attention(Random& random, DType dtype, const AttentionDims& d, const Options& options,
                      const std::string& what) {
  const Tensor q = random.tensor(dtype, {d.batch, d.queries, d.heads, d.width}, 2);
  const Tensor k = random.tensor(dtype, {d.batch, d.keys, d.groups, d.width}, 2);
  const Tensor v = random.tensor(dtype, {d.batch, d.keys, d.groups, d.width});
  // Scores are sums of `width` products of normals with deviation 2: five deviations bound them.
  const double largest_score = 5 * 4 * std::sqrt(static_cast<double>(d.width)) * std::fabs(options.scale);
  const Tolerance allowed = tolerance(dtype, std::max(d.keys, d.width), Operands::kRounded, largest_score);
  expect_agreement(dtype, q.shape(), allowed, what, [&](Backend& b, Tensor& out) {
    b.attention({.q = q,
                 .k = k,
                 .v = v,
                 .out = out,
                 .scale = options.scale,
                 .causal = options.causal,
                 .key_mask = options.key_mask,
                 .segment_ends = options.segment_ends});
  });
}

TEST_P(AttentionKernel, OddShapes) {
  Random random(21);
  for (const AttentionDims& d :
       {AttentionDims{1, 1, 1, 1, 1, 1}, AttentionDims{1, 3, 5, 2, 1, 7}, AttentionDims{2, 7, 64, 4, 2, 64},
        AttentionDims{1, 97, 65, 2, 2, 32}, AttentionDims{1, 13, 300, 3, 3, 128}, AttentionDims{1, 5, 257, 1, 1, 130},
        AttentionDims{1, 97, 321, 4, 2, 33}, AttentionDims{2, 13, 640, 2, 1, 72}, AttentionDims{1, 1, 513, 1, 1, 1},
        AttentionDims{1, 0, 4, 2, 2, 8}})
    expect_attention(random, GetParam(), d, {}, "S " + std::to_string(d.queries) + " T " + std::to_string(d.keys));
}

TEST_P(AttentionKernel, Causal) {
  Random random(22);
  for (const AttentionDims& d :
       {AttentionDims{1, 70, 70, 2, 1, 16}, AttentionDims{1, 5, 270, 2, 2, 24}, AttentionDims{1, 200, 200, 1, 1, 8}})
    expect_attention(random, GetParam(), d, {.causal = true}, "causal " + std::to_string(d.keys));
}

TEST_P(AttentionKernel, KeyMask) {
  Random random(23);
  const int64_t keys = 290;
  Tensor mask = Tensor::empty(DType::kBool, {2, keys});
  for (int64_t i = 0; i < 2 * keys; ++i) mask.mutable_data<bool>()[i] = i % keys < 3 || random.integer(0, 2) == 0;
  for (int64_t i = 0; i < 256; ++i) mask.mutable_data<bool>()[i] = false;  // a whole block unseen before one that is
  expect_attention(random, GetParam(), {2, 11, keys, 2, 1, 16}, {.key_mask = &mask}, "mask");
}

TEST_P(AttentionKernel, SegmentsAttendWithinThemselves) {
  Random random(24);
  for (const std::vector<int64_t>& ends : {std::vector<int64_t>{5, 69, 70, 180}, std::vector<int64_t>{100}}) {
    expect_attention(random, GetParam(), {1, 180, 180, 2, 2, 20}, {.segment_ends = ends}, "segments");
    expect_attention(random, GetParam(), {1, 180, 180, 2, 2, 20}, {.causal = true, .segment_ends = ends}, "both");
  }
}

TEST_P(AttentionKernel, NegativeAndZeroScale) {
  Random random(25);
  expect_attention(random, GetParam(), {1, 9, 33, 2, 2, 16}, {.scale = -0.25f}, "negative");
  expect_attention(random, GetParam(), {1, 9, 33, 2, 2, 16}, {.scale = 0}, "zero");
}

TEST_P(AttentionKernel, LargeScoresDoNotOverflow) {
  Random random(26);
  expect_attention(random, GetParam(), {1, 20, 70, 1, 1, 64}, {.scale = 4}, "large");
}

TEST_P(AttentionKernel, StridedViews) {
  Random random(27);
  const Tensor all = random.tensor(GetParam(), {1, 40, 3, 2, 16});  // q, k and v side by side
  const Tensor q = all.select(2, 0), k = all.select(2, 1), v = all.select(2, 2);
  expect_agreement(GetParam(), {1, 40, 2, 16}, tolerance(GetParam(), 40, Operands::kRounded), "views",
                   [&](Backend& b, Tensor& out) { b.attention({.q = q, .k = k, .v = v, .out = out, .scale = 0.25f}); });
}

TEST_P(AttentionKernel, NanInOneKeyReachesEveryQueryOfItsHead) {
  Random random(28);
  const DType dtype = GetParam();
  const Tensor q = random.tensor(dtype, {1, 8, 2, 16}), v = random.tensor(dtype, {1, 70, 2, 16});
  Tensor k = random.tensor(DType::kF32, {1, 70, 2, 16});
  k.mutable_data<float>()[(66 * 2 + 1) * 16 + 3] = NAN;
  const Tensor keys = k.to(dtype);
  expect_agreement(dtype, q.shape(), tolerance(dtype, 70, Operands::kRounded), "nan", [&](Backend& b, Tensor& out) {
    b.attention({.q = q, .k = keys, .v = v, .out = out, .scale = 0.25f});
  });
}

TEST_P(AttentionKernel, NothingSeenIsNan) {
  Random random(29);
  Tensor mask = Tensor::zeros(DType::kBool, {1, 10});
  expect_attention(random, GetParam(), {1, 3, 10, 1, 1, 8}, {.key_mask = &mask}, "all hidden");
}

TEST(AttentionThreads, TheSameBitsForEveryThreadCount) {
  if (on_a_device()) GTEST_SKIP() << "a device has no threads of ours";
  Random random(30);
  const Tensor q = random.tensor(DType::kBF16, {1, 300, 4, 64}), k = random.tensor(DType::kBF16, {1, 300, 4, 64});
  const Tensor v = random.tensor(DType::kBF16, {1, 300, 4, 64});
  const std::unique_ptr<Backend> one = make_backend("cpu", 1);
  Tensor first = Tensor::empty(DType::kBF16, q.shape()), second = first.clone();
  fast().attention({.q = q, .k = k, .v = v, .out = first, .scale = 0.125f});
  one->attention({.q = q, .k = k, .v = v, .out = second, .scale = 0.125f});
  EXPECT_TRUE(std::ranges::equal(first.contiguous_bytes(), second.contiguous_bytes()));
}

}  // namespace
}  // namespace lockstep::testing
