#include "backend/cpu/attention_block.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_block.cpp"
#include "tensor/simd_targets.h"
// after the choice of targets
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after the target headers
#include "backend/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

// 2^x for x <= 0 (or NaN) within 1e-7; below 2^-126 it is 0. The magic number puts the nearest integer into the low
// bits.
HWY_INLINE Vector power_of_two(Vector x) {
  const hn::RebindToUnsigned<Float> bits;
  const auto magic = hn::Set(kFloat, 12582912.0f);  // 1.5 * 2^23
  const auto low = hn::Set(kFloat, -127.0f);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  x = hn::Max(low, x);  // in this order a NaN stays
#else
  x = hn::IfThenElse(hn::Lt(x, low), low, x);  // elsewhere Max drops a NaN in either order
#endif
  const auto shifted = hn::Add(x, magic);
  const auto r = hn::Sub(x, hn::Sub(shifted, magic));
  auto p = hn::Set(kFloat, 1.327642845e-03f);
  p = hn::MulAdd(p, r, hn::Set(kFloat, 9.675532832e-03f));
  p = hn::MulAdd(p, r, hn::Set(kFloat, 5.550713318e-02f));
  p = hn::MulAdd(p, r, hn::Set(kFloat, 2.402211989e-01f));
  p = hn::MulAdd(p, r, hn::Set(kFloat, 6.931469671e-01f));
  p = hn::MulAdd(p, r, hn::Set(kFloat, 1.0f));
  const auto scaled = hn::BitCast(kFloat, hn::Add(hn::BitCast(bits, p), hn::ShiftLeft<23>(hn::BitCast(bits, shifted))));
  // Not 0 but x * 0: adding to its bits makes a number of some NaNs.
  return hn::IfThenElse(hn::Gt(x, hn::Set(kFloat, -126.0f)), scaled, hn::Mul(x, hn::Zero(kFloat)));
}

template <typename Weight>
HWY_INLINE void soften(const ScoreBlock& block) {
  const int64_t step = lanes();
  const auto factor = hn::Set(kFloat, block.factor);
  for (int64_t row = 0; row < block.rows; ++row) {
    float* scores = block.scores + row * block.scores_stride;
    Vector top[2] = {hn::Set(kFloat, -std::numeric_limits<float>::infinity()),
                     hn::Set(kFloat, -std::numeric_limits<float>::infinity())};
    for (int64_t i = 0; i < block.columns; i += 2 * step) {
      top[0] = hn::Max(hn::Load(kFloat, scores + i), top[0]);
      top[1] = hn::Max(hn::Load(kFloat, scores + i + step), top[1]);
    }
    const float before = block.largest[row];
    const float now = std::fmax(before, max_of(hn::Max(top[0], top[1])) * block.factor);
    const float finite =
        now == -std::numeric_limits<float>::infinity() ? 0.0f : now;  // nothing seen yet: weights are 0
    block.largest[row] = now;
    const auto shift = hn::Set(kFloat, finite);
    Weight* weights = static_cast<Weight*>(block.weights) + row * block.weights_stride;
    Vector sum[2] = {hn::Zero(kFloat), hn::Zero(kFloat)};
    for (int64_t i = 0; i < block.columns; i += 2 * step) {
      const auto a = power_of_two(hn::MulSub(hn::Load(kFloat, scores + i), factor, shift));
      const auto b = power_of_two(hn::MulSub(hn::Load(kFloat, scores + i + step), factor, shift));
      put(a, weights + i);
      put(b, weights + i + step);
      sum[0] = hn::Add(sum[0], a);
      sum[1] = hn::Add(sum[1], b);
    }
    const float added = sum_of(hn::Add(sum[0], sum[1]));
    const float fade = std::exp2(before - finite);
    block.total[row] = block.total[row] * fade + added;
    if (before == now) continue;
    float* sums = block.sums + row * block.sums_stride;
    const auto faded = hn::Set(kFloat, fade);
    for (int64_t i = 0; i < block.width; i += step)
      hn::Store(hn::Mul(hn::Load(kFloat, sums + i), faded), kFloat, sums + i);
  }
}

void SoftenToF32(const ScoreBlock& block) {
  soften<float>(block);
}
void SoftenToBf16(const ScoreBlock& block) {
  soften<BFloat16>(block);
}

void ScaleRow(float* row, float factor, int64_t width) {
  const auto by = hn::Set(kFloat, factor);
  for (int64_t i = 0; i < width; i += lanes()) hn::Store(hn::Mul(hn::Load(kFloat, row + i), by), kFloat, row + i);
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {

HWY_EXPORT(SoftenToF32);
HWY_EXPORT(SoftenToBf16);
HWY_EXPORT(ScaleRow);

void scale_row(float* row, float factor, int64_t width) {
  HWY_DYNAMIC_DISPATCH(ScaleRow)(row, factor, width);
}

void soften_f32(const ScoreBlock& block) {
  HWY_DYNAMIC_DISPATCH(SoftenToF32)(block);
}

void soften_bf16(const ScoreBlock& block) {
  HWY_DYNAMIC_DISPATCH(SoftenToBf16)(block);
}

}  // namespace lockstep::cpu
#endif
