// Vectors of f32 loaded from and stored to f32, bf16 and f16, and the functions norms and activations need. Compiled
// once per instruction set: include only from files that go through hwy/foreach_target.h.
#if defined(LOCKSTEP_CPU_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_CPU_VECTORS_INL_H
#undef LOCKSTEP_CPU_VECTORS_INL_H
#else
#define LOCKSTEP_CPU_VECTORS_INL_H
#endif

#include <cstring>
#include <type_traits>

#include "backend/cpu/features.h"
#include "hwy/highway.h"
#include "tensor/float_formats.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Float = hn::ScalableTag<float>;
using Vector = hn::Vec<Float>;
inline constexpr Float kFloat{};

HWY_INLINE int64_t lanes() {
  return static_cast<int64_t>(hn::Lanes(kFloat));
}

HWY_INLINE Vector load(const float* at) {
  return hn::LoadU(kFloat, at);
}
HWY_INLINE Vector load(const BFloat16* at) {
  const hn::Rebind<uint16_t, Float> narrow;
  const hn::RebindToUnsigned<Float> wide;
  const auto bits = hn::PromoteTo(wide, hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(at)));
  return hn::BitCast(kFloat, hn::ShiftLeft<16>(bits));
}
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
// Highway's emulation of f16 truncates: go through the scalar conversions, which round.
HWY_INLINE Vector load(const Half* at) {
  HWY_ALIGN float wide[hn::MaxLanes(kFloat)];
  for (size_t i = 0; i < hn::MaxLanes(kFloat); ++i) wide[i] = float_from(at[i]);
  return hn::Load(kFloat, wide);
}
HWY_INLINE void store(Vector v, Half* at) {
  HWY_ALIGN float wide[hn::MaxLanes(kFloat)];
  hn::Store(v, kFloat, wide);
  for (size_t i = 0; i < hn::MaxLanes(kFloat); ++i) at[i] = half_from(wide[i]);
}
#else
HWY_INLINE Vector load(const Half* at) {
  const hn::Rebind<hwy::float16_t, Float> narrow;
  return hn::PromoteTo(kFloat, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(at)));
}
HWY_INLINE void store(Vector v, Half* at) {
  const hn::Rebind<hwy::float16_t, Float> narrow;
  hn::StoreU(hn::DemoteTo(narrow, v), narrow, reinterpret_cast<hwy::float16_t*>(at));
}
#endif

// bf16 bits of each lane in the low half of a 32-bit lane: nearest even, every NaN quiet, as bfloat16_from() does.
HWY_INLINE hn::Vec<hn::RebindToUnsigned<Float>> bf16_bits(Vector v) {
  const hn::RebindToUnsigned<Float> wide;
  const auto bits = hn::BitCast(wide, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(wide, 0x7FFFu))));
  const auto quiet = hn::Or(hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 0x8000u)), hn::Set(wide, 0x7FC0u));
  return hn::IfThenElse(hn::RebindMask(wide, hn::IsNaN(v)), quiet, rounded);
}

HWY_INLINE void store(Vector v, float* at) {
  hn::StoreU(v, kFloat, at);
}
HWY_INLINE void store(Vector v, BFloat16* at) {
  const hn::Rebind<uint16_t, Float> narrow;
  const hn::RebindToSigned<Float> wide;
  hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(wide, bf16_bits(v))), narrow, reinterpret_cast<uint16_t*>(at));
}

// The same for results of arithmetic, with the processor's own rounding where it has one (Highway does not know it): a
// third of the instructions. It takes subnormals, below 1e-38, for zero, which casts must not do and results may.
HWY_INLINE void put(Vector v, float* at) {
  store(v, at);
}
HWY_INLINE void put(Vector v, Half* at) {
  store(v, at);
}
HWY_INLINE void put(Vector v, BFloat16* at) {
#if HWY_TARGET == HWY_AVX3
  if (rounds_bf16_in_hardware) {
    __m256i narrow;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(narrow) : "v"(v.raw));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), narrow);
    return;
  }
#endif
  store(v, at);
}

// Which part of a vector an access covers: all lanes, or the first `count` at the end of a row.
struct Whole {
  static constexpr bool kWhole = true;
};
struct Tail {
  static constexpr bool kWhole = false;
  int64_t count;
};

template <typename T>
HWY_INLINE Vector load(const T* at, Whole) {
  return load(at);
}
template <typename T>
HWY_INLINE Vector load(const T* at, Tail tail) {
  HWY_ALIGN T buffer[hn::MaxLanes(kFloat)] = {};
  std::memcpy(buffer, at, static_cast<size_t>(tail.count) * sizeof(T));
  return load(buffer);
}
template <typename T>
HWY_INLINE void store(Vector v, T* at, Whole) {
  store(v, at);
}
template <typename T>
HWY_INLINE void store(Vector v, T* at, Tail tail) {
  HWY_ALIGN T buffer[hn::MaxLanes(kFloat)];
  store(v, buffer);
  std::memcpy(at, buffer, static_cast<size_t>(tail.count) * sizeof(T));
}
template <typename T>
HWY_INLINE void put(Vector v, T* at, Whole) {
  put(v, at);
}
template <typename T>
HWY_INLINE void put(Vector v, T* at, Tail tail) {
  store(v, at, tail);
}
// How a kernel writes its rows: Usual keeps them in the caches, Past goes around them, which saves reading the old
// lines of an output far larger than the caches. Past needs rows that start at and last for whole cache lines.
struct Usual {
  template <typename T, typename Part>
  static HWY_INLINE void put(Vector v, T* at, Part part) {
    HWY_NAMESPACE::put(v, at, part);
  }
};
struct Past {
  template <typename T, typename Part>
  static HWY_INLINE void put(Vector v, T* at, Part part) {
#if HWY_TARGET == HWY_AVX3
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (rounds_bf16_in_hardware) {
        __m256i narrow;
        __asm__("vcvtneps2bf16 %1, %0" : "=v"(narrow) : "v"(v.raw));
        _mm256_stream_si256(reinterpret_cast<__m256i*>(at), narrow);
        return;
      }
    }
#endif
    if constexpr (std::is_same_v<T, float>)
      hn::Stream(v, kFloat, at);
    else
      HWY_NAMESPACE::put(v, at, part);
  }
};

// Two vectors' worth of elements in any order, for sums: bf16 as its even and its odd elements, which needs no shuffle.
struct Two {
  Vector a, b;
};
template <typename T>
HWY_INLINE Two load_two(const T* at) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::RebindToUnsigned<Float> wide;
    const auto both = hn::LoadU(wide, reinterpret_cast<const uint32_t*>(at));
    return {hn::BitCast(kFloat, hn::ShiftLeft<16>(both)),
            hn::BitCast(kFloat, hn::And(both, hn::Set(wide, 0xFFFF0000u)))};
  }
#endif
  return {load(at), load(at + lanes())};
}

// Lanes beyond the end replaced by `fill`, for reductions.
HWY_INLINE Vector masked(Vector v, Vector, Whole) {
  return v;
}
HWY_INLINE Vector masked(Vector v, Vector fill, Tail tail) {
  return hn::IfThenElse(hn::FirstN(kFloat, static_cast<size_t>(tail.count)), v, fill);
}

// function(index, Whole or Tail) over [0, count).
template <typename Function>
HWY_INLINE void sweep(int64_t count, Function&& function) {
  const int64_t step = lanes();
  int64_t i = 0;
  for (; i + step <= count; i += step) function(i, Whole{});
  if (i < count) function(i, Tail{count - i});
}

HWY_INLINE float sum_of(Vector v) {
  return hn::GetLane(hn::SumOfLanes(kFloat, v));
}
HWY_INLINE float max_of(Vector v) {
  return hn::GetLane(hn::MaxOfLanes(kFloat, v));
}

// Rounds to T and back: where torch rounds an intermediate, so do we.
HWY_INLINE Vector rounded_to(Vector v, const float*) {
  return v;
}
HWY_INLINE Vector rounded_to(Vector v, const BFloat16*) {
#if HWY_TARGET == HWY_AVX3
  if (rounds_bf16_in_hardware) {
    __m256i narrow;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(narrow) : "v"(v.raw));
    return Vector{_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16))};
  }
#endif
  return hn::BitCast(kFloat, hn::ShiftLeft<16>(bf16_bits(v)));
}
HWY_INLINE Vector rounded_to(Vector v, const Half*) {
  HWY_ALIGN Half narrow[hn::MaxLanes(kFloat)];
  store(v, narrow);
  return load(narrow);
}

// e^x within 2 units in the last place, from 0 (subnormals included) to infinity; NaN stays NaN.
HWY_INLINE Vector exp(Vector x) {
  const hn::RebindToSigned<Float> integer;
  const auto bounded = hn::Max(hn::Min(x, hn::Set(kFloat, 89.0f)), hn::Set(kFloat, -104.5f));
  const auto k = hn::Round(hn::Mul(bounded, hn::Set(kFloat, 1.44269504088896341f)));
  // ln 2 in two parts: k * high is exact.
  auto r = hn::NegMulAdd(k, hn::Set(kFloat, 0.693359375f), bounded);
  r = hn::NegMulAdd(k, hn::Set(kFloat, -2.12194440e-4f), r);
  auto p = hn::Set(kFloat, 1.0f / 5040);
  p = hn::MulAdd(p, r, hn::Set(kFloat, 1.0f / 720));
  p = hn::MulAdd(p, r, hn::Set(kFloat, 1.0f / 120));
  p = hn::MulAdd(p, r, hn::Set(kFloat, 1.0f / 24));
  p = hn::MulAdd(p, r, hn::Set(kFloat, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(kFloat, 0.5f));
  p = hn::MulAdd(hn::Mul(r, r), p, hn::Add(r, hn::Set(kFloat, 1.0f)));
  // 2^k in two factors, since k runs beyond the exponents of a float on both sides.
  const auto steps = hn::ConvertTo(integer, k);
  const auto half = hn::ShiftRight<1>(steps);
  const auto bias = hn::Set(integer, 127);
  const auto scale_a = hn::BitCast(kFloat, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto scale_b = hn::BitCast(kFloat, hn::ShiftLeft<23>(hn::Add(hn::Sub(steps, half), bias)));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Mul(hn::Mul(p, scale_a), scale_b));
}

HWY_INLINE Vector silu(Vector x) {
  return hn::Div(x, hn::Add(hn::Set(kFloat, 1.0f), exp(hn::Neg(x))));
}

// 0.5 x (1 + tanh(u)) = x / (1 + e^(-2u)): the same function without the cancellation in 1 + tanh.
HWY_INLINE Vector gelu_tanh(Vector x) {
  const auto cube = hn::Mul(hn::Mul(x, x), x);
  const auto u = hn::Mul(hn::Set(kFloat, -1.5957691216057308f), hn::MulAdd(hn::Set(kFloat, 0.044715f), cube, x));
  return hn::Div(x, hn::Add(hn::Set(kFloat, 1.0f), exp(u)));
}

// x Phi(x), through erfc(z) e^(z^2) for z >= 0 as a polynomial in t = 1 / (1 + z / 2): weighted least squares over
// z in [0, 12], largest relative error 3e-8.
HWY_INLINE Vector gelu_erf(Vector x) {
  const auto one = hn::Set(kFloat, 1.0f);
  const auto z = hn::Mul(hn::Abs(x), hn::Set(kFloat, 0.70710678118654752f));
  const auto t = hn::Div(one, hn::MulAdd(z, hn::Set(kFloat, 0.5f), one));
  constexpr float kFit[] = {6.937534997e-03f,
                            -9.511102461e-02f,
                            3.651014170e-01f,
                            -5.884176631e-01f,
                            3.566650890e-01f,
                            -6.558092423e-02f,
                            2.149636983e-01f,
                            2.407396917e-01f,
                            2.826270051e-01f,
                            2.820751471e-01f,
                            0.0f};
  auto p = hn::Set(kFloat, kFit[0]);
  for (size_t i = 1; i < sizeof(kFit) / sizeof(float); ++i) p = hn::MulAdd(p, t, hn::Set(kFloat, kFit[i]));
  // erfc(z) / 2 for |x|; Phi(x) is that on the negative side and one minus it on the positive.
  const auto tail = hn::Mul(hn::Mul(hn::Set(kFloat, 0.5f), p), exp(hn::Neg(hn::Mul(z, z))));
  const auto phi = hn::IfThenElse(hn::Lt(x, hn::Zero(kFloat)), tail, hn::Sub(one, tail));
  return hn::Mul(x, phi);
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
