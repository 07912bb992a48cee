// vdpbf16ps, which Highway does not know: two bf16 products a lane added to f32, without rounding in between.
#include "backend/cpu/panel.h"

#include "backend/cpu/avx512_bf16.h"
#include "base/error.h"

#if defined(__x86_64__)

namespace lockstep::cpu {
namespace {

// 6 x 4 accumulators of 32 registers: see panel_f32.cpp for why not 12 x 2.
constexpr int kTileRows = 6;

template <int kRows, int kVectors>
LOCKSTEP_AVX512_BF16 inline void tile(const BFloat16* a, int64_t a_stride, const uint32_t* panel, float* c,
                                      int64_t c_stride, int64_t pairs, bool accumulate) {
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = accumulate ? _mm512_loadu_ps(c + r * c_stride + v * 16) : _mm512_setzero_ps();
  for (int64_t i = 0; i < pairs; ++i) {
    __m512bh b[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) b[v] = (__m512bh)_mm512_load_si512(panel + i * kPanel + v * 16);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      int pair;
      __builtin_memcpy(&pair, a + r * a_stride + 2 * i, sizeof pair);
      const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, b[v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(c + r * c_stride + v * 16, sum[r][v]);
}

template <int kRows, int kVectors>
LOCKSTEP_AVX512_BF16 void band(const PanelProduct& p, int64_t row, int64_t column) {
  tile<kRows, kVectors>(static_cast<const BFloat16*>(p.a) + row * p.a_stride, p.a_stride,
                        static_cast<const uint32_t*>(p.panel) + column, p.c + row * p.c_stride + column, p.c_stride,
                        p.k / 2, p.accumulate);
}

// The last rows, fewer than a tile has.
template <int kRows, int kVectors>
void rest(const PanelProduct& p, int64_t row, int64_t column) {
  if constexpr (kRows > 0) {
    if (p.rows - row == kRows) return band<kRows, kVectors>(p, row, column);
    rest<kRows - 1, kVectors>(p, row, column);
  }
}

template <int kVectors>
void columns(const PanelProduct& p, int64_t column) {
  int64_t row = 0;
  for (; row + kTileRows <= p.rows; row += kTileRows) band<kTileRows, kVectors>(p, row, column);
  rest<kTileRows - 1, kVectors>(p, row, column);
}

}  // namespace

void multiply_bf16_avx512(const PanelProduct& p) {
  if (p.columns > 32)  // columns <= 64
    columns<4>(p, 0);
  else if (p.columns > 16)
    columns<2>(p, 0);
  else if (p.columns > 0)
    columns<1>(p, 0);
}

}  // namespace lockstep::cpu

#else

namespace lockstep::cpu {

void multiply_bf16_avx512(const PanelProduct&) {
  fail(Code::kInternal, "linear", "AVX512-BF16 code on another architecture");
}

}  // namespace lockstep::cpu

#endif
