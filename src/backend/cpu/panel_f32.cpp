#include <algorithm>

#include "backend/cpu/panel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/panel_f32.cpp"
#include "tensor/simd_targets.h"
// after the choice of targets
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after the target headers
#include "backend/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

// Accumulators fill the register file: 24 of 32 registers, 12 of 16. Six rows with AVX-512 rather than twelve: rows of
// x a multiple of 4 KB apart, as widths of 3072 are, meet in one set of the first cache, which has eight places.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kTileRows = 6, kTileVectors = 4;
#elif HWY_TARGET == HWY_NEON
inline constexpr int kTileRows = 12, kTileVectors = 2;
#else
inline constexpr int kTileRows = 6, kTileVectors = 2;
#endif

template <int kRows, int kVectors>
HWY_INLINE void tile(const float* HWY_RESTRICT a, int64_t a_stride, const float* HWY_RESTRICT panel,
                     float* HWY_RESTRICT c, int64_t c_stride, int64_t k, bool accumulate) {
  const int64_t step = lanes();
  Vector sum[kRows][kVectors];
  HWY_UNROLL(12)
  for (int r = 0; r < kRows; ++r) HWY_UNROLL(4)
  for (int v = 0; v < kVectors; ++v)
    sum[r][v] = accumulate ? hn::LoadU(kFloat, c + r * c_stride + v * step) : hn::Zero(kFloat);
  for (int64_t i = 0; i < k; ++i) {
    Vector b[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) b[v] = hn::Load(kFloat, panel + i * kPanel + v * step);
    HWY_UNROLL(12)
    for (int r = 0; r < kRows; ++r) {
      const Vector x = hn::Set(kFloat, a[r * a_stride + i]);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x, b[v], sum[r][v]);
    }
  }
  HWY_UNROLL(12)
  for (int r = 0; r < kRows; ++r) HWY_UNROLL(4)
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], kFloat, c + r * c_stride + v * step);
}

template <int kRows, int kVectors>
HWY_NOINLINE void band(const PanelProduct& p, int64_t row, int64_t column) {
  tile<kRows, kVectors>(static_cast<const float*>(p.a) + row * p.a_stride, p.a_stride,
                        static_cast<const float*>(p.panel) + column, p.c + row * p.c_stride + column, p.c_stride, p.k,
                        p.accumulate);
}

// The last rows, fewer than a tile has.
template <int kRows, int kVectors>
HWY_INLINE void rest(const PanelProduct& p, int64_t row, int64_t column) {
  if constexpr (kRows > 0) {
    if (p.rows - row == kRows) return band<kRows, kVectors>(p, row, column);
    rest<kRows - 1, kVectors>(p, row, column);
  }
}

template <int kVectors>
HWY_INLINE void columns(const PanelProduct& p, int64_t column) {
  int64_t row = 0;
  for (; row + kTileRows <= p.rows; row += kTileRows) band<kTileRows, kVectors>(p, row, column);
  rest<kTileRows - 1, kVectors>(p, row, column);
}

void MultiplyF32(const PanelProduct& p) {
  const int64_t step = lanes();
  for (int64_t column = 0; column < p.columns;) {
    const int64_t left = p.columns - column;
    if (left > 2 * step && kTileVectors > 2) {
      columns<kTileVectors>(p, column);
      column += kTileVectors * step;
    } else if (left > step) {
      columns<2>(p, column);
      column += 2 * step;
    } else {
      columns<1>(p, column);
      column += step;
    }
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
