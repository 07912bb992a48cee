#include <cmath>
#include <type_traits>

#include "backend/cpu/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/norm_rows.cpp"
#include "tensor/simd_targets.h"
// after the choice of targets
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after the target headers
#include "backend/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

// Sum of f(x_i) with four independent chains: one chain would wait for each addition.
template <typename T, typename Term>
HWY_INLINE float sum_over(const T* x, int64_t count, Term&& term) {
  const int64_t step = lanes();
  Vector a = hn::Zero(kFloat), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 4 * step <= count; i += 4 * step) {
    const Two first = load_two(x + i), second = load_two(x + i + 2 * step);
    a = term(first.a, a);
    b = term(first.b, b);
    c = term(second.a, c);
    d = term(second.b, d);
  }
  for (; i + step <= count; i += step) a = term(load(x + i), a);
  if (i < count) {
    const Tail tail{count - i};
    b = hn::Add(b, masked(term(load(x + i, tail), hn::Zero(kFloat)), hn::Zero(kFloat), tail));
  }
  return sum_of(hn::Add(hn::Add(a, b), hn::Add(c, d)));
}

template <typename T>
HWY_INLINE float squares(const T* x, int64_t count) {
  return sum_over(x, count, [](Vector v, Vector sum) HWY_ATTR { return hn::MulAdd(v, v, sum); });
}

template <typename T>
void rms_norm_as(const RmsNormRows& task, int64_t begin, int64_t end) {
  const int64_t width = task.x.columns();
  for (int64_t row = begin; row < end; ++row) {
    const T* x = task.x.at<T>(row);
    T* out = task.out.at<T>(row);
    const auto inverse = hn::Set(kFloat, 1 / std::sqrt(squares(x, width) / static_cast<float>(width) + task.eps));
    sweep(width, [&](int64_t i, auto part) HWY_ATTR {
      Vector y = hn::Mul(load(x + i, part), inverse);
      if (task.weight) y = hn::Mul(rounded_to(y, x), load(task.weight + i, part));  // torch casts before the product
      put(y, out + i, part);
    });
  }
}

template <typename T, typename Writer>
void layer_norm_with(const LayerNormRows& task, int64_t begin, int64_t end) {
  const int64_t width = task.x.columns();
  for (int64_t row = begin; row < end; ++row) {
    const T* x = task.x.at<T>(row);
    T* out = task.out.at<T>(row);
    const int64_t batch = row / task.rows_per_batch;
    const float* factor = task.factor ? task.factor + batch * width : nullptr;
    const float* shift = task.shift ? task.shift + batch * width : nullptr;
    const float mean =
        sum_over(x, width, [](Vector v, Vector sum) HWY_ATTR { return hn::Add(v, sum); }) / static_cast<float>(width);
    const auto center = hn::Set(kFloat, mean);
    const float variance = sum_over(x, width,
                                    [&](Vector v, Vector sum) HWY_ATTR {
                                      const Vector d = hn::Sub(v, center);
                                      return hn::MulAdd(d, d, sum);
                                    }) /
                           static_cast<float>(width);
    const auto inverse = hn::Set(kFloat, 1 / std::sqrt(variance + task.eps));
    // The next row comes from memory while this one, by now in the first cache, is finished.
    const T* next = row + 1 < end ? task.x.at<T>(row + 1) : x;
    if (!task.weight && !task.bias && factor && shift) {  // the one that large images spend their time in
      sweep(width, [&](int64_t i, auto part) HWY_ATTR {
        __builtin_prefetch(next + i);
        const Vector y = hn::Mul(hn::Sub(load(x + i, part), center), inverse);
        Writer::put(hn::MulAdd(y, load(factor + i, part), load(shift + i, part)), out + i, part);
      });
      continue;
    }
    sweep(width, [&](int64_t i, auto part) HWY_ATTR {
      Vector y = hn::Mul(hn::Sub(load(x + i, part), center), inverse);
      if (task.weight) y = hn::Mul(y, load(task.weight + i, part));
      if (task.bias) y = hn::Add(y, load(task.bias + i, part));
      if (factor) y = hn::Mul(y, load(factor + i, part));
      if (shift) y = hn::Add(y, load(shift + i, part));
      Writer::put(y, out + i, part);
    });
  }
}

template <typename T>
void layer_norm_as(const LayerNormRows& task, int64_t begin, int64_t end) {
  if (task.out.worth_streaming() && task.out.base() != task.x.base())
    layer_norm_with<T, Past>(task, begin, end);
  else
    layer_norm_with<T, Usual>(task, begin, end);
}

inline constexpr int64_t kWidestHead = 512;

// One token's cosines and sines as every head of it uses them, the norm's weight w multiplied in:
// [w0 c0, w1 c0, w2 c1, ...] and, for the swapped neighbour, [-w1 s0, w0 s0, -w3 s1, ...].
struct PairTables {
  HWY_ALIGN float cos[kWidestHead + hn::MaxLanes(Float())] = {};
  HWY_ALIGN float sin[kWidestHead + hn::MaxLanes(Float())] = {};

  HWY_INLINE void fill(const float* cosines, const float* sines, const float* weight, int64_t half) {
    for (int64_t i = 0; i < half; ++i) {
      const float first = weight ? weight[2 * i] : 1.0f, second = weight ? weight[2 * i + 1] : 1.0f;
      cos[2 * i] = first * cosines[i];
      cos[2 * i + 1] = second * cosines[i];
      sin[2 * i] = -second * sines[i];
      sin[2 * i + 1] = first * sines[i];
    }
  }
};

HWY_INLINE Vector swap_neighbours(Vector v) {
#if HWY_TARGET == HWY_SCALAR
  return v;  // one lane has no neighbour; not called
#else
  return hn::Shuffle2301(v);
#endif
}

// Heads are short: the sums of several are found first, so that none waits for the square root of the one before it.
inline constexpr int64_t kHeadsAtOnce = 8;

template <typename T>
HWY_INLINE void inverse_norms(const HeadRows& task, int64_t begin, int64_t end, float* inverse) {
  const int64_t width = task.x.columns();
  for (int64_t row = begin; row < end; ++row) inverse[row - begin] = squares(task.x.at<T>(row), width);
  const auto count = hn::Set(kFloat, static_cast<float>(width)), eps = hn::Set(kFloat, task.eps);
  for (int64_t i = 0; i < kHeadsAtOnce; i += lanes()) {
    const Vector mean = hn::Div(hn::LoadU(kFloat, inverse + i), count);
    hn::StoreU(hn::Div(hn::Set(kFloat, 1.0f), hn::Sqrt(hn::Add(mean, eps))), kFloat, inverse + i);
  }
}

template <typename T, typename Writer, bool kNorm>
HWY_INLINE void head_row(const HeadRows& task, const T* x, T* out, float inverse_norm, const float* cos,
                         const float* sin, const PairTables& tables) {
  const int64_t width = task.x.columns(), half = width / 2;
  const auto inverse = hn::Set(kFloat, inverse_norm);
  const auto normal = [&](int64_t i, auto part) HWY_ATTR {
    const Vector v = load(x + i, part);
    if constexpr (!kNorm) return v;
    return hn::Mul(rounded_to(hn::Mul(v, inverse), x), load(task.weight + i, part));
  };
  if (task.style == RopeStyle::kNone)
    return sweep(width, [&](int64_t i, auto part) HWY_ATTR { Writer::put(normal(i, part), out + i, part); });
  if (task.style == RopeStyle::kHalfSplit)
    return sweep(half, [&](int64_t i, auto part) HWY_ATTR {
      const Vector a = normal(i, part), b = normal(half + i, part), c = load(cos + i, part), s = load(sin + i, part);
      Writer::put(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), out + i, part);
      Writer::put(hn::MulAdd(a, s, hn::Mul(b, c)), out + half + i, part);
    });
  if (lanes() == 1) {
    for (int64_t i = 0; i < half; ++i) {
      const Vector a = normal(2 * i, Whole{}), b = normal(2 * i + 1, Whole{}), c = load(cos + i), s = load(sin + i);
      Writer::put(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), out + 2 * i, Whole{});
      Writer::put(hn::MulAdd(a, s, hn::Mul(b, c)), out + 2 * i + 1, Whole{});
    }
    return;
  }
  sweep(width, [&](int64_t i, auto part) HWY_ATTR {
    Vector v = load(x + i, part);
    if constexpr (kNorm) v = rounded_to(hn::Mul(v, inverse), x);
    const Vector turned = hn::Mul(swap_neighbours(v), hn::Load(kFloat, tables.sin + i));
    Writer::put(hn::MulAdd(v, hn::Load(kFloat, tables.cos + i), turned), out + i, part);
  });
}

template <typename T, typename Writer>
void head_rows_with(const HeadRows& task, int64_t begin, int64_t end) {
  const int64_t half = task.x.columns() / 2;
  PairTables tables;
  int64_t token = begin / task.heads % task.tokens, head = begin % task.heads;
  bool filled = false;
  HWY_ALIGN float inverse[kHeadsAtOnce + hn::MaxLanes(Float())] = {};
  for (int64_t first = begin; first < end; first += kHeadsAtOnce) {
    const int64_t last = first + kHeadsAtOnce < end ? first + kHeadsAtOnce : end;
    if (task.weight) inverse_norms<T>(task, first, last, inverse);
    for (int64_t row = first; row < last; ++row) {
      const float *cos = task.cos + token * half, *sin = task.sin + token * half;
      if (task.style == RopeStyle::kInterleaved && !filled) tables.fill(cos, sin, task.weight, half);
      filled = true;
      if (++head == task.heads) {
        head = 0;
        filled = false;
        if (++token == task.tokens) token = 0;
      }
      const T* x = task.x.at<T>(row);
      T* out = task.out.at<T>(row);
      if (row + kHeadsAtOnce < end)  // the heads after these, while these are in the first cache
        for (int64_t i = 0; i < 2 * half; i += 64 / static_cast<int64_t>(sizeof(T)))
          __builtin_prefetch(task.x.at<T>(row + kHeadsAtOnce) + i);
      if (task.weight)
        head_row<T, Writer, true>(task, x, out, inverse[row - first], cos, sin, tables);
      else
        head_row<T, Writer, false>(task, x, out, 0, cos, sin, tables);
    }
  }
}

template <typename T>
void head_rows_as(const HeadRows& task, int64_t begin, int64_t end) {
  // A half-split head is written in two runs, and the second has to begin at a whole line as well.
  const bool whole_lines = task.style != RopeStyle::kHalfSplit || task.out.columns() / 2 * sizeof(T) % 64 == 0;
  if (whole_lines && task.out.worth_streaming() && task.out.base() != task.x.base())
    head_rows_with<T, Past>(task, begin, end);
  else
    head_rows_with<T, Usual>(task, begin, end);
}

template <typename T>
void channel_norm_as(const ChannelNormRows& task, int64_t begin, int64_t end) {
  const int64_t channels = task.x.columns();
  const float root = std::sqrt(static_cast<float>(channels));
  for (int64_t row = begin; row < end; ++row) {
    const T* x = task.x.at<T>(row);
    T* out = task.out.at<T>(row);
    const float norm = std::sqrt(squares(x, channels));
    const auto factor = hn::Set(kFloat, root / (norm < 1e-12f ? 1e-12f : norm));  // a NaN norm stays NaN
    sweep(channels, [&](int64_t i, auto part) HWY_ATTR {
      const Vector y = hn::Mul(hn::Mul(load(x + i, part), factor), load(task.gamma + i, part));
      put(task.silu ? silu(y) : y, out + i, part);
    });
  }
}

template <typename T>
void guidance_as(const GuidanceRows& task, int64_t begin, int64_t end) {
  const int64_t width = task.cond.columns();
  const auto scale = hn::Set(kFloat, task.scale);
  for (int64_t row = begin; row < end; ++row) {
    const T *cond = task.cond.at<T>(row), *uncond = task.uncond.at<T>(row);
    T* out = task.out.at<T>(row);
    const auto combined = [&](int64_t i, auto part) HWY_ATTR {
      const Vector u = load(uncond + i, part);
      return rounded_to(hn::MulAdd(scale, hn::Sub(load(cond + i, part), u), u), cond);
    };
    if (!task.rescale) {
      sweep(width, [&](int64_t i, auto part) HWY_ATTR { put(combined(i, part), out + i, part); });
      continue;
    }
    Vector sum = hn::Zero(kFloat);
    sweep(width, [&](int64_t i, auto part) HWY_ATTR {
      const Vector v = masked(combined(i, part), hn::Zero(kFloat), part);
      sum = hn::MulAdd(v, v, sum);
    });
    // No epsilon: the official pipeline has none, and 0/0 is NaN there too.
    const auto factor = hn::Set(kFloat, std::sqrt(squares(cond, width)) / std::sqrt(sum_of(sum)));
    sweep(width, [&](int64_t i, auto part) HWY_ATTR { put(hn::Mul(combined(i, part), factor), out + i, part); });
  }
}

#define LOCKSTEP_ROW_KERNEL(Name, Task, kernel)             \
  void Name(const Task& task, int64_t begin, int64_t end) { \
    if (task.dtype == DType::kBF16)                         \
      kernel<BFloat16>(task, begin, end);                   \
    else if (task.dtype == DType::kF16)                     \
      kernel<Half>(task, begin, end);                       \
    else                                                    \
      kernel<float>(task, begin, end);                      \
  }
LOCKSTEP_ROW_KERNEL(RmsNorm, RmsNormRows, rms_norm_as)
LOCKSTEP_ROW_KERNEL(LayerNorm, LayerNormRows, layer_norm_as)
LOCKSTEP_ROW_KERNEL(Head, HeadRows, head_rows_as)
LOCKSTEP_ROW_KERNEL(ChannelNorm, ChannelNormRows, channel_norm_as)
LOCKSTEP_ROW_KERNEL(Guidance, GuidanceRows, guidance_as)
#undef LOCKSTEP_ROW_KERNEL

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {

HWY_EXPORT(RmsNorm);
HWY_EXPORT(LayerNorm);
HWY_EXPORT(Head);
HWY_EXPORT(ChannelNorm);
HWY_EXPORT(Guidance);

void rms_norm_rows(const RmsNormRows& task, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(task, begin, end);
}
void layer_norm_rows(const LayerNormRows& task, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(LayerNorm)(task, begin, end);
}
void head_rows(const HeadRows& task, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Head)(task, begin, end);
}
void channel_norm_rows(const ChannelNormRows& task, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(ChannelNorm)(task, begin, end);
}
void guidance_rows(const GuidanceRows& task, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Guidance)(task, begin, end);
}

}  // namespace lockstep::cpu
#endif
