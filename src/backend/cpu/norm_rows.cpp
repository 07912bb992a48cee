#include <cmath>
#include <limits>
#include <type_traits>

#include "backend/cpu/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/norm_rows.cpp"
#include "backend/cpu/targets.h"
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
    a = term(load(x + i), a);
    b = term(load(x + i + step), b);
    c = term(load(x + i + 2 * step), c);
    d = term(load(x + i + 3 * step), d);
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
      store(y, out + i, part);
    });
  }
}

template <typename T>
void layer_norm_as(const LayerNormRows& task, int64_t begin, int64_t end) {
  const int64_t width = task.x.columns();
  const auto one = hn::Set(kFloat, 1.0f);
  for (int64_t row = begin; row < end; ++row) {
    const T* x = task.x.at<T>(row);
    T* out = task.out.at<T>(row);
    const int64_t batch = row / task.rows_per_batch;
    const float* scale = task.scale ? task.scale + batch * width : nullptr;
    const float* shift = task.shift ? task.shift + batch * width : nullptr;
    const float mean = sum_over(x, width, [](Vector v, Vector sum) HWY_ATTR { return hn::Add(v, sum); }) /
                       static_cast<float>(width);
    const auto center = hn::Set(kFloat, mean);
    const float variance = sum_over(x, width, [&](Vector v, Vector sum) HWY_ATTR {
                             const Vector d = hn::Sub(v, center);
                             return hn::MulAdd(d, d, sum);
                           }) / static_cast<float>(width);
    const auto inverse = hn::Set(kFloat, 1 / std::sqrt(variance + task.eps));
    const auto finish = [&](auto with_affine, auto with_modulation) HWY_ATTR {
      sweep(width, [&](int64_t i, auto part) HWY_ATTR {
        Vector y = hn::Mul(hn::Sub(load(x + i, part), center), inverse);
        if constexpr (decltype(with_affine)::value) {
          if (task.weight) y = hn::Mul(y, load(task.weight + i, part));
          if (task.bias) y = hn::Add(y, load(task.bias + i, part));
        }
        if constexpr (decltype(with_modulation)::value) {
          if (scale) y = hn::Mul(y, hn::Add(one, load(scale + i, part)));
          if (shift) y = hn::Add(y, load(shift + i, part));
        }
        store(y, out + i, part);
      });
    };
    if (!task.weight && !task.bias)
      finish(std::false_type{}, std::true_type{});
    else
      finish(std::true_type{}, std::true_type{});
  }
}

// (a, b) pairs turned by (cos, sin): a c - b s, a s + b c.
HWY_INLINE void rotate_half_split(float* y, int64_t half, const float* cos, const float* sin) {
  sweep(half, [&](int64_t i, auto part) HWY_ATTR {
    const Vector a = load(y + i, part), b = load(y + half + i, part), c = load(cos + i, part), s = load(sin + i, part);
    store(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), y + i, part);
    store(hn::MulAdd(a, s, hn::Mul(b, c)), y + half + i, part);
  });
}

HWY_INLINE void rotate_interleaved(float* y, int64_t half, const float* cos, const float* sin) {
  const int64_t step = lanes();
  int64_t i = 0;
  for (; i + step <= half; i += step) {
    Vector a, b;
    hn::LoadInterleaved2(kFloat, y + 2 * i, a, b);
    const Vector c = load(cos + i), s = load(sin + i);
    hn::StoreInterleaved2(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), hn::MulAdd(a, s, hn::Mul(b, c)), kFloat, y + 2 * i);
  }
  for (; i < half; ++i) {
    const float a = y[2 * i], b = y[2 * i + 1];
    y[2 * i] = a * cos[i] - b * sin[i];
    y[2 * i + 1] = a * sin[i] + b * cos[i];
  }
}

inline constexpr int64_t kHeadBlock = 512;  // heads wider than this are an error

template <typename T>
void head_rows_as(const HeadRows& task, int64_t begin, int64_t end) {
  const int64_t width = task.x.columns(), half = width / 2;
  HWY_ALIGN float y[kHeadBlock];
  for (int64_t row = begin; row < end; ++row) {
    const T* x = task.x.at<T>(row);
    const int64_t token = row / task.heads % task.tokens;
    if (task.weight) {
      const auto inverse = hn::Set(kFloat, 1 / std::sqrt(squares(x, width) / static_cast<float>(width) + task.eps));
      sweep(width, [&](int64_t i, auto part) HWY_ATTR {
        const Vector normal = rounded_to(hn::Mul(load(x + i, part), inverse), x);
        store(hn::Mul(normal, load(task.weight + i, part)), y + i, part);
      });
    } else {
      sweep(width, [&](int64_t i, auto part) HWY_ATTR { store(load(x + i, part), y + i, part); });
    }
    if (task.style == RopeStyle::kInterleaved)
      rotate_interleaved(y, half, task.cos + token * half, task.sin + token * half);
    else if (task.style == RopeStyle::kHalfSplit)
      rotate_half_split(y, half, task.cos + token * half, task.sin + token * half);
    T* out = task.out.at<T>(row);
    sweep(width, [&](int64_t i, auto part) HWY_ATTR { store(load(y + i, part), out + i, part); });
  }
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
      store(task.silu ? silu(y) : y, out + i, part);
    });
  }
}

template <typename T>
void softmax_as(const SoftmaxRows& task, int64_t begin, int64_t end) {
  const int64_t width = task.x.columns();
  const auto lowest = hn::Set(kFloat, -std::numeric_limits<float>::infinity());
  for (int64_t row = begin; row < end; ++row) {
    const T* x = task.x.at<T>(row);
    T* out = task.out.at<T>(row);
    Vector top = lowest;
    sweep(width, [&](int64_t i, auto part) HWY_ATTR { top = hn::Max(masked(load(x + i, part), lowest, part), top); });
    const auto largest = hn::Set(kFloat, max_of(top));
    Vector sum = hn::Zero(kFloat);
    sweep(width, [&](int64_t i, auto part) HWY_ATTR {
      sum = hn::Add(sum, masked(exp(hn::Sub(load(x + i, part), largest)), hn::Zero(kFloat), part));
    });
    const auto inverse = hn::Set(kFloat, 1 / sum_of(sum));
    sweep(width, [&](int64_t i, auto part) HWY_ATTR {
      store(hn::Mul(exp(hn::Sub(load(x + i, part), largest)), inverse), out + i, part);
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
      sweep(width, [&](int64_t i, auto part) HWY_ATTR { store(combined(i, part), out + i, part); });
      continue;
    }
    Vector sum = hn::Zero(kFloat);
    sweep(width, [&](int64_t i, auto part) HWY_ATTR {
      const Vector v = masked(combined(i, part), hn::Zero(kFloat), part);
      sum = hn::MulAdd(v, v, sum);
    });
    // No epsilon: the official pipeline has none, and 0/0 is NaN there too.
    const auto factor = hn::Set(kFloat, std::sqrt(squares(cond, width)) / std::sqrt(sum_of(sum)));
    sweep(width, [&](int64_t i, auto part) HWY_ATTR { store(hn::Mul(combined(i, part), factor), out + i, part); });
  }
}

#define LOCKSTEP_ROW_KERNEL(Name, Task, kernel)                      \
  void Name(const Task& task, int64_t begin, int64_t end) {          \
    if (task.dtype == DType::kBF16)                                  \
      kernel<BFloat16>(task, begin, end);                            \
    else if (task.dtype == DType::kF16)                              \
      kernel<Half>(task, begin, end);                                \
    else                                                             \
      kernel<float>(task, begin, end);                               \
  }
LOCKSTEP_ROW_KERNEL(RmsNorm, RmsNormRows, rms_norm_as)
LOCKSTEP_ROW_KERNEL(LayerNorm, LayerNormRows, layer_norm_as)
LOCKSTEP_ROW_KERNEL(Head, HeadRows, head_rows_as)
LOCKSTEP_ROW_KERNEL(ChannelNorm, ChannelNormRows, channel_norm_as)
LOCKSTEP_ROW_KERNEL(Softmax, SoftmaxRows, softmax_as)
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
HWY_EXPORT(Softmax);
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
void softmax_rows(const SoftmaxRows& task, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Softmax)(task, begin, end);
}
void guidance_rows(const GuidanceRows& task, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Guidance)(task, begin, end);
}

}  // namespace lockstep::cpu
#endif
