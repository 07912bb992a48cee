// Online softmax with bf16 weights out: AVX-512 with its one-instruction rounding to bf16, which Highway lacks.
#include <cmath>
#include <limits>

#include "backend/cpu/attention_block.h"
#include "backend/cpu/avx512_bf16.h"
#include "base/error.h"

#if defined(__x86_64__)

namespace lockstep::cpu {
namespace {

// 2^x for x <= 0 (or NaN) within 3e-6, well below the 2^-9 of the bf16 it becomes; the fraction first, then the
// exponent.
LOCKSTEP_AVX512_BF16 inline __m512 power_of_two(__m512 x) {
  const __m512 r = _mm512_sub_ps(x, _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  __m512 p = _mm512_set1_ps(9.570050620e-03f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.591775752e-02f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.402474501e-01f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.931218277e-01f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, _mm512_sub_ps(x, r));
}

LOCKSTEP_AVX512_BF16 inline __m512 bounded(__m512 x) {  // minus infinity has no fraction; in this order a NaN stays
  return _mm512_max_ps(_mm512_set1_ps(-200.0f), x);
}

}  // namespace

LOCKSTEP_AVX512_BF16 void soften_bf16_avx512(const ScoreBlock& block) {
  const __m512 factor = _mm512_set1_ps(block.factor);
  const __m512 lowest = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  for (int64_t row = 0; row < block.rows; ++row) {
    const float* scores = block.scores + row * block.scores_stride;
    __m512 top_a = lowest, top_b = lowest, top_c = lowest, top_d = lowest;
    for (int64_t i = 0; i < block.columns; i += 64) {
      top_a = _mm512_max_ps(_mm512_load_ps(scores + i), top_a);
      top_b = _mm512_max_ps(_mm512_load_ps(scores + i + 16), top_b);
      top_c = _mm512_max_ps(_mm512_load_ps(scores + i + 32), top_c);
      top_d = _mm512_max_ps(_mm512_load_ps(scores + i + 48), top_d);
    }
    const float top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(top_a, top_b), _mm512_max_ps(top_c, top_d)));
    const float before = block.largest[row];
    const float now = std::fmax(before, top * block.factor);
    const float finite =
        now == -std::numeric_limits<float>::infinity() ? 0.0f : now;  // nothing seen yet: weights are 0
    block.largest[row] = now;
    const __m512 shift = _mm512_set1_ps(finite);
    BFloat16* weights = static_cast<BFloat16*>(block.weights) + row * block.weights_stride;
    __m512 sum_a = _mm512_setzero_ps(), sum_b = sum_a;
    for (int64_t i = 0; i < block.columns; i += 32) {
      const __m512 a = power_of_two(bounded(_mm512_fmsub_ps(_mm512_load_ps(scores + i), factor, shift)));
      const __m512 b = power_of_two(bounded(_mm512_fmsub_ps(_mm512_load_ps(scores + i + 16), factor, shift)));
      sum_a = _mm512_add_ps(sum_a, a);
      sum_b = _mm512_add_ps(sum_b, b);
      _mm512_storeu_si512(weights + i, (__m512i)_mm512_cvtne2ps_pbh(b, a));
    }
    const float added = _mm512_reduce_add_ps(_mm512_add_ps(sum_a, sum_b));
    const float fade = std::exp2(before - finite);
    block.total[row] = block.total[row] * fade + added;
    if (before == now) continue;
    float* sums = block.sums + row * block.sums_stride;
    const __m512 faded = _mm512_set1_ps(fade);
    for (int64_t i = 0; i < block.width; i += 16)
      _mm512_store_ps(sums + i, _mm512_mul_ps(_mm512_load_ps(sums + i), faded));
  }
}

}  // namespace lockstep::cpu

#else

namespace lockstep::cpu {

void soften_bf16_avx512(const ScoreBlock&) {
  fail(Code::kInternal, "attention", "AVX512-BF16 code on another architecture");
}

}  // namespace lockstep::cpu

#endif
