// bfdot of 64-bit ARM, which Highway does not know: two bf16 products a lane added to f32. See panel.h for the layout.
#include "backend/cpu/panel.h"
#include "base/error.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define LOCKSTEP_NEON_BF16 __attribute__((target("arch=armv8.2-a+bf16")))

namespace lockstep::cpu {
namespace {

constexpr int kLanes = 4;     // f32 sums of a vector, pairs of bf16 values of another
constexpr int kTileRows = 6;  // 6 x 4 sums of 32 registers

template <int kRows, int kVectors>
LOCKSTEP_NEON_BF16 void tile(const BFloat16* a, int64_t a_stride, const uint32_t* panel, float* c, int64_t c_stride,
                             int64_t pairs, bool accumulate) {
  float32x4_t sum[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = accumulate ? vld1q_f32(c + r * c_stride + v * kLanes) : vdupq_n_f32(0);
  for (int64_t i = 0; i < pairs; ++i) {
    bfloat16x8_t b[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) b[v] = vreinterpretq_bf16_u32(vld1q_u32(panel + i * kPanel + v * kLanes));
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      uint32_t pair;
      __builtin_memcpy(&pair, a + r * a_stride + 2 * i, sizeof pair);
      const bfloat16x8_t x = vreinterpretq_bf16_u32(vdupq_n_u32(pair));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = vbfdotq_f32(sum[r][v], x, b[v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) vst1q_f32(c + r * c_stride + v * kLanes, sum[r][v]);
}

template <int kRows>
void rows_of(const PanelProduct& p, int64_t row) {
  const auto* a = static_cast<const BFloat16*>(p.a) + row * p.a_stride;
  for (int64_t column = 0; column < p.columns; column += 4 * kLanes)
    tile<kRows, 4>(a, p.a_stride, static_cast<const uint32_t*>(p.panel) + column, p.c + row * p.c_stride + column,
                   p.c_stride, p.k / 2, p.accumulate);
}

}  // namespace

void multiply_bf16_neon(const PanelProduct& p) {
  int64_t row = 0;
  for (; row + kTileRows <= p.rows; row += kTileRows) rows_of<kTileRows>(p, row);
  for (; row + 2 <= p.rows; row += 2) rows_of<2>(p, row);
  for (; row < p.rows; ++row) rows_of<1>(p, row);
}

}  // namespace lockstep::cpu

#else

namespace lockstep::cpu {

void multiply_bf16_neon(const PanelProduct&) {
  fail(Code::kInternal, "linear", "code for 64-bit ARM on another architecture");
}

}  // namespace lockstep::cpu

#endif
