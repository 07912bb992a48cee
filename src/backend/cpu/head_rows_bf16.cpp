// qk-norm + interleaved rotation of bf16 heads with AVX512-BF16. A register of bf16 pairs splits into its even and its
// odd elements, which are the two parts of each rotated number: no shuffle before the arithmetic, and one instruction
// rounds both parts.
#include "backend/cpu/head_rows_bf16.h"

#include <cmath>

#include "backend/cpu/avx512_bf16.h"
#include "base/error.h"

#if defined(__x86_64__)

namespace lockstep::cpu {
namespace {

constexpr int64_t kStep = 32;        // elements of one register of bf16
constexpr int64_t kWidest = 256;     // head width
constexpr int64_t kHeadsAtOnce = 8;  // sums are found first, so that no head waits for the square root of another

// One token's factors of every pair (even, odd), the norm's weights multiplied in:
// out_even = even * [w_even c] + odd * [-w_odd s], out_odd = odd * [w_odd c] + even * [w_even s].
struct TurnTables {
  alignas(64) float even_even[kWidest / 2], odd_even[kWidest / 2], odd_odd[kWidest / 2], even_odd[kWidest / 2];
};

LOCKSTEP_AVX512_BF16 void fill(TurnTables& tables, const float* cos, const float* sin, const float* weight,
                               int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float even = weight ? weight[2 * i] : 1.0f, odd = weight ? weight[2 * i + 1] : 1.0f;
    tables.even_even[i] = even * cos[i];
    tables.odd_even[i] = -odd * sin[i];
    tables.odd_odd[i] = odd * cos[i];
    tables.even_odd[i] = even * sin[i];
  }
}

struct Pair {
  __m512 even, odd;
};

LOCKSTEP_AVX512_BF16 inline Pair split(__m512i both) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))))};
}

// Rounded to bf16 and side by side again.
LOCKSTEP_AVX512_BF16 inline __m512i joined(__m512 even, __m512 odd, __m512i order) {
  return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}

LOCKSTEP_AVX512_BF16 inline float squares(const BFloat16* x, int64_t width) {
  __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 2 * kStep <= width; i += 2 * kStep) {
    const Pair first = split(_mm512_loadu_si512(x + i)), second = split(_mm512_loadu_si512(x + i + kStep));
    a = _mm512_fmadd_ps(first.even, first.even, a);
    b = _mm512_fmadd_ps(first.odd, first.odd, b);
    c = _mm512_fmadd_ps(second.even, second.even, c);
    d = _mm512_fmadd_ps(second.odd, second.odd, d);
  }
  if (i < width) {
    const Pair last = split(_mm512_loadu_si512(x + i));
    a = _mm512_fmadd_ps(last.even, last.even, a);
    b = _mm512_fmadd_ps(last.odd, last.odd, b);
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)));
}

template <bool kNorm, bool kPast>
LOCKSTEP_AVX512_BF16 inline void turn(const BFloat16* x, BFloat16* out, float inverse_norm, const TurnTables& tables,
                                      int64_t width, __m512i order) {
  const __m512 inverse = _mm512_set1_ps(inverse_norm);
  for (int64_t i = 0; i < width; i += kStep) {
    Pair v = split(_mm512_loadu_si512(x + i));
    if constexpr (kNorm) v = split(joined(_mm512_mul_ps(v.even, inverse), _mm512_mul_ps(v.odd, inverse), order));
    const int64_t at = i / 2;
    const __m512 even = _mm512_fmadd_ps(v.even, _mm512_load_ps(tables.even_even + at),
                                        _mm512_mul_ps(v.odd, _mm512_load_ps(tables.odd_even + at)));
    const __m512 odd = _mm512_fmadd_ps(v.odd, _mm512_load_ps(tables.odd_odd + at),
                                       _mm512_mul_ps(v.even, _mm512_load_ps(tables.even_odd + at)));
    const __m512i both = joined(even, odd, order);
    if constexpr (kPast)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i), both);
    else
      _mm512_storeu_si512(out + i, both);
  }
}

template <bool kNorm, bool kPast>
LOCKSTEP_AVX512_BF16 void rows(const HeadRows& task, int64_t begin, int64_t end) {
  const int64_t width = task.x.columns(), half = width / 2;
  alignas(64) uint16_t places[kStep];
  for (int i = 0; i < kStep / 2; ++i) {
    places[2 * i] = static_cast<uint16_t>(i);
    places[2 * i + 1] = static_cast<uint16_t>(i + kStep / 2);
  }
  const __m512i order = _mm512_load_si512(places);
  TurnTables tables;
  int64_t token = begin / task.heads % task.tokens, head = begin % task.heads;
  bool filled = false;
  alignas(64) float inverse[16] = {};
  for (int64_t first = begin; first < end; first += kHeadsAtOnce) {
    const int64_t last = first + kHeadsAtOnce < end ? first + kHeadsAtOnce : end;
    if constexpr (kNorm) {
      for (int64_t row = first; row < last; ++row) inverse[row - first] = squares(task.x.at<BFloat16>(row), width);
      const __m512 mean = _mm512_div_ps(_mm512_load_ps(inverse), _mm512_set1_ps(static_cast<float>(width)));
      const __m512 root = _mm512_sqrt_ps(_mm512_add_ps(mean, _mm512_set1_ps(task.eps)));
      _mm512_store_ps(inverse, _mm512_div_ps(_mm512_set1_ps(1.0f), root));
    }
    for (int64_t row = first; row < last; ++row) {
      if (!filled) fill(tables, task.cos + token * half, task.sin + token * half, task.weight, half);
      filled = true;
      if (++head == task.heads) {
        head = 0;
        filled = false;
        if (++token == task.tokens) token = 0;
      }
      if (row + 2 * kHeadsAtOnce < end)  // from memory while these are in the first cache
        for (int64_t i = 0; i < width; i += kStep) __builtin_prefetch(task.x.at<BFloat16>(row + 2 * kHeadsAtOnce) + i);
      turn<kNorm, kPast>(task.x.at<BFloat16>(row), task.out.at<BFloat16>(row), inverse[row - first], tables, width,
                         order);
    }
  }
}

}  // namespace

bool head_rows_bf16_fits(const HeadRows& task) {
  const int64_t width = task.x.columns();
  return task.dtype == DType::kBF16 && task.style == RopeStyle::kInterleaved && width % kStep == 0 && width <= kWidest;
}

void head_rows_bf16_avx512(const HeadRows& task, int64_t begin, int64_t end) {
  const bool past = task.out.worth_streaming() && task.out.base() != task.x.base();
  if (task.weight)
    past ? rows<true, true>(task, begin, end) : rows<true, false>(task, begin, end);
  else
    past ? rows<false, true>(task, begin, end) : rows<false, false>(task, begin, end);
}

}  // namespace lockstep::cpu

#else

namespace lockstep::cpu {

bool head_rows_bf16_fits(const HeadRows&) {
  return false;
}

void head_rows_bf16_avx512(const HeadRows&, int64_t, int64_t) {
  fail(Code::kInternal, "head_norm_rope", "AVX512-BF16 code on another architecture");
}

}  // namespace lockstep::cpu

#endif
