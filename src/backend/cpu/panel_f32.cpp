#include <algorithm>

#include "backend/cpu/panel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/panel_f32.cpp"
#include "backend/cpu/targets.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after the target headers
#include "backend/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

// Accumulators fill the register file: 6 x 4 of 32 registers, 6 x 2 of 16.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kTileVectors = 4;
#else
inline constexpr int kTileVectors = 2;
#endif
inline constexpr int kTileRows = 6;

template <int kRows, int kVectors>
HWY_INLINE void tile(const float* HWY_RESTRICT a, int64_t a_stride, const float* HWY_RESTRICT panel,
                     float* HWY_RESTRICT c, int64_t c_stride, int64_t k, bool accumulate) {
  const int64_t step = lanes();
  Vector sum[kRows][kVectors];
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r)
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = accumulate ? hn::LoadU(kFloat, c + r * c_stride + v * step) : hn::Zero(kFloat);
  for (int64_t i = 0; i < k; ++i) {
    Vector b[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) b[v] = hn::Load(kFloat, panel + i * kPanel + v * step);
    HWY_UNROLL(6)
    for (int r = 0; r < kRows; ++r) {
      const Vector x = hn::Set(kFloat, a[r * a_stride + i]);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x, b[v], sum[r][v]);
    }
  }
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r)
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], kFloat, c + r * c_stride + v * step);
}

template <int kRows>
HWY_NOINLINE void row_band(const PanelProduct& p, int64_t row) {
  const float* a = static_cast<const float*>(p.a) + row * p.a_stride;
  const float* panel = static_cast<const float*>(p.panel);
  float* c = p.c + row * p.c_stride;
  const int64_t step = lanes();
  int64_t column = 0;
  for (; column + (kTileVectors - 1) * step < p.columns; column += kTileVectors * step)
    tile<kRows, kTileVectors>(a, p.a_stride, panel + column, c + column, p.c_stride, p.k, p.accumulate);
  for (; column < p.columns; column += step)
    tile<kRows, 1>(a, p.a_stride, panel + column, c + column, p.c_stride, p.k, p.accumulate);
}

void MultiplyF32(const PanelProduct& p) {
  int64_t row = 0;
  for (; row + kTileRows <= p.rows; row += kTileRows) row_band<kTileRows>(p, row);
  switch (p.rows - row) {
    case 5:
      return row_band<5>(p, row);
    case 4:
      return row_band<4>(p, row);
    case 3:
      return row_band<3>(p, row);
    case 2:
      return row_band<2>(p, row);
    case 1:
      return row_band<1>(p, row);
    default:
      return;
  }
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {

HWY_EXPORT(MultiplyF32);

void multiply_f32(const PanelProduct& product) {
  HWY_DYNAMIC_DISPATCH(MultiplyF32)(product);
}

}  // namespace lockstep::cpu
#endif
