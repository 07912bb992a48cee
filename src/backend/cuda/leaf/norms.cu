// Kernels of one row a block or a warp: norms, modulation, rotation, guidance.
#include "backend/cuda/leaf/device.cuh"
#include "backend/cuda/leaf/fp8.cuh"
#include "backend/cuda/leaf/kernels.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128, kHeldUnits = 4;  // a modulated row is up to 4096 wide

// A small operand of a row: f32, or of the activations' own type.
struct Vector {
  const void* data;  // or null
  int dtype;
  int64_t batch_stride;  // elements
};

Vector vector_of(const View* view) {
  if (!view || !view->data) return {nullptr, kF32, 0};
  return {view->data, view->dtype, view->rank > 1 ? view->strides[0] : 0};
}

__device__ __forceinline__ float element(const Vector& v, int64_t batch, int64_t i) {
  const int64_t at = batch * v.batch_stride + i;
  if (v.dtype == kF32) return static_cast<const float*>(v.data)[at];
  if (v.dtype == kBF16) return widen(static_cast<const __nv_bfloat16*>(v.data)[at]);
  return widen(static_cast<const __half*>(v.data)[at]);
}

// function(value, column) for each of the row's elements that this thread has, eight at a time where the row allows.
template <typename T, int kUnit, typename Function>
__device__ __forceinline__ void for_row(const T* row, int64_t width, Function&& function) {
  for (int64_t unit = threadIdx.x; unit < width / kUnit; unit += kThreads) {
    if constexpr (kUnit == 8) {
      const Eight<T> eight = reinterpret_cast<const Eight<T>*>(row)[unit];
#pragma unroll
      for (int j = 0; j < 8; ++j) function(widen(eight.v[j]), unit * 8 + j);
    } else {
      function(widen(row[unit]), unit);
    }
  }
}

// out = function(value, column); a row may be its own result, since a thread reads what it writes before it does.
template <typename T, int kUnit, typename Function>
__device__ __forceinline__ void map_row(const T* row, T* out, int64_t width, Function&& function) {
  for (int64_t unit = threadIdx.x; unit < width / kUnit; unit += kThreads) {
    if constexpr (kUnit == 8) {
      const Eight<T> eight = reinterpret_cast<const Eight<T>*>(row)[unit];
      Eight<T> y;
#pragma unroll
      for (int j = 0; j < 8; ++j) y.v[j] = narrow<T>(function(widen(eight.v[j]), unit * 8 + j));
      reinterpret_cast<Eight<T>*>(out)[unit] = y;
    } else {
      out[unit] = narrow<T>(function(widen(row[unit]), unit));
    }
  }
}

template <typename T, int kUnit>
__global__ void __launch_bounds__(kThreads)
    layer_norm_rows(RowMap x, RowMap out, Vector weight, Vector bias, Vector scale, Vector shift,
                    int64_t rows_per_batch, float eps) {
  const int64_t row = blockIdx.x, width = x.columns, batch = row / rows_per_batch;
  const T* from = x.at<T>(row);
  float sum = 0;
  for_row<T, kUnit>(from, width, [&](float value, int64_t) { sum += value; });
  const float mean = block_sum<kThreads>(sum) / static_cast<float>(width);
  float squares = 0;
  for_row<T, kUnit>(from, width, [&](float value, int64_t) { squares += (value - mean) * (value - mean); });
  const float inverse = 1.0f / sqrtf(block_sum<kThreads>(squares) / static_cast<float>(width) + eps);
  map_row<T, kUnit>(from, out.at<T>(row), width, [&](float value, int64_t column) {
    float y = (value - mean) * inverse;
    if (weight.data) y *= element(weight, 0, column);
    if (bias.data) y += element(bias, 0, column);
    if (scale.data) y *= 1.0f + element(scale, batch, column);
    if (shift.data) y += element(shift, batch, column);
    return y;
  });
}

template <typename T>
struct BatchRows {  // a row a batch, of the activations' own type
  const T* data;
  int64_t stride;
  __device__ __forceinline__ Eight<T> unit(int64_t batch, int64_t i) const {
    return reinterpret_cast<const Eight<T>*>(data + batch * stride)[i];
  }
};

// The result once more in e4m3, each row divided by its scale: what to_fp8_rows makes of it.
struct Fp8Result {
  __nv_fp8_e4m3* rows;  // [rows, width], or null
  float* scales;        // [rows]
};

// The modulated norm of the transformer: all operands of one type, eight at a time. With kGated the row is
// x + gate * y first, which is written to `sum` and rounded as it would be when read from there.
template <typename T, bool kGated, bool kFp8>
__global__ void __launch_bounds__(kThreads)
    modulated_norm_rows(RowMap x, RowMap out, BatchRows<T> scale, BatchRows<T> shift, int64_t rows_per_batch, float eps,
                        RowMap y, RowMap sums, BatchRows<T> gate, Fp8Result small) {
  const int64_t row = blockIdx.x, width = x.columns, units = width / 8, batch = row / rows_per_batch;
  const Eight<T>* from = reinterpret_cast<const Eight<T>*>(x.at<T>(row));
  Eight<T> held[kHeldUnits];  // the row, read once
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kHeldUnits; ++i) {
    const int64_t unit = threadIdx.x + static_cast<int64_t>(i) * kThreads;
    if (unit < units) held[i] = from[unit];
  }
  if constexpr (kGated) {
    const Eight<T>* added = reinterpret_cast<const Eight<T>*>(y.at<T>(row));
    Eight<T>* to = reinterpret_cast<Eight<T>*>(sums.at<T>(row));
#pragma unroll
    for (int i = 0; i < kHeldUnits; ++i) {
      const int64_t unit = threadIdx.x + static_cast<int64_t>(i) * kThreads;
      if (unit >= units) continue;
      const Eight<T> g = gate.unit(batch, unit), more = added[unit];
#pragma unroll
      for (int j = 0; j < 8; ++j) held[i].v[j] = narrow<T>(widen(more.v[j]) * widen(g.v[j]) + widen(held[i].v[j]));
      to[unit] = held[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kHeldUnits; ++i) {
    if (threadIdx.x + static_cast<int64_t>(i) * kThreads >= units) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += widen(held[i].v[j]);
  }
  const float mean = block_sum<kThreads>(sum) / static_cast<float>(width);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kHeldUnits; ++i) {
    if (threadIdx.x + static_cast<int64_t>(i) * kThreads >= units) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float d = widen(held[i].v[j]) - mean;
      squares += d * d;
    }
  }
  const float inverse = 1.0f / sqrtf(block_sum<kThreads>(squares) / static_cast<float>(width) + eps);
  T* to = out.at<T>(row);
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kHeldUnits; ++i) {
    const int64_t unit = threadIdx.x + static_cast<int64_t>(i) * kThreads;
    if (unit >= units) continue;
    const Eight<T> s = scale.unit(batch, unit), h = shift.unit(batch, unit);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      held[i].v[j] = narrow<T>((widen(held[i].v[j]) - mean) * inverse * (1.0f + widen(s.v[j])) + widen(h.v[j]));
      if constexpr (kFp8) largest = fmaxf(largest, fabsf(widen(held[i].v[j])));
    }
    reinterpret_cast<Eight<T>*>(to)[unit] = held[i];
  }
  if constexpr (kFp8) {
    const float of_row = fp8_scale(block_largest<kThreads>(largest)), divide = 1.0f / of_row;
    if (threadIdx.x == 0) small.scales[row] = of_row;
#pragma unroll
    for (int i = 0; i < kHeldUnits; ++i) {
      const int64_t unit = threadIdx.x + static_cast<int64_t>(i) * kThreads;
      if (unit < units) write_fp8(held[i], divide, small.rows + row * width + unit * 8);
    }
  }
}

template <typename T, int kUnit>
__global__ void __launch_bounds__(kThreads) rms_norm_rows(RowMap x, RowMap out, Vector weight, float eps) {
  const int64_t row = blockIdx.x, width = x.columns;
  const T* from = x.at<T>(row);
  float squares = 0;
  for_row<T, kUnit>(from, width, [&](float value, int64_t) { squares += value * value; });
  const float inverse = 1.0f / sqrtf(block_sum<kThreads>(squares) / static_cast<float>(width) + eps);
  map_row<T, kUnit>(from, out.at<T>(row), width, [&](float value, int64_t column) {
    const float y = widen(narrow<T>(value * inverse));  // torch casts before the weight product
    return weight.data ? y * element(weight, 0, column) : y;
  });
}

// Rows of 128 elements, such as heads: sixteen lanes each, eight elements a lane.
template <typename T>
__global__ void __launch_bounds__(kThreads) rms_norm_128(RowMap x, RowMap out, Vector weight, float eps) {
  constexpr int kLanes = 16;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / kLanes) + threadIdx.x / kLanes;
  if (row >= x.count) return;
  const int lane = threadIdx.x % kLanes;
  Eight<T> held = reinterpret_cast<const Eight<T>*>(x.at<T>(row))[lane];
  float squares = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) squares += widen(held.v[j]) * widen(held.v[j]);
  const unsigned mask = 0xffffu << (threadIdx.x % 32 / kLanes * kLanes);
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) squares += __shfl_xor_sync(mask, squares, offset);
  const float inverse = 1.0f / sqrtf(squares / 128.0f + eps);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float y = widen(narrow<T>(widen(held.v[j]) * inverse));  // torch casts before the weight product
    held.v[j] = narrow<T>(weight.data ? y * element(weight, 0, lane * 8 + j) : y);
  }
  reinterpret_cast<Eight<T>*>(out.at<T>(row))[lane] = held;
}

// A warp a pixel.
template <typename T, int kUnit>
__global__ void __launch_bounds__(kThreads) channel_norm_rows(RowMap x, RowMap out, Vector gamma, bool with_silu) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32, channels = x.columns;
  if (row >= x.count) return;
  const int lane = threadIdx.x % 32;
  const T* from = x.at<T>(row);
  T* to = out.at<T>(row);
  const int64_t units = channels / kUnit;
  float squares = 0;
  for (int64_t unit = lane; unit < units; unit += 32) {
    if constexpr (kUnit == 8) {
      const Eight<T> eight = reinterpret_cast<const Eight<T>*>(from)[unit];
#pragma unroll
      for (int j = 0; j < 8; ++j) squares += widen(eight.v[j]) * widen(eight.v[j]);
    } else {
      squares += widen(from[unit]) * widen(from[unit]);
    }
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, offset);
  const float norm = sqrtf(squares);
  const float factor = sqrtf(static_cast<float>(channels)) / (norm < 1e-12f ? 1e-12f : norm);
  const auto value = [&](float v, int64_t c) {
    const float y = v * factor * element(gamma, 0, c);
    return with_silu ? silu(y) : y;
  };
  for (int64_t unit = lane; unit < units; unit += 32) {
    if constexpr (kUnit == 8) {
      const Eight<T> eight = reinterpret_cast<const Eight<T>*>(from)[unit];
      Eight<T> y;
#pragma unroll
      for (int j = 0; j < 8; ++j) y.v[j] = narrow<T>(value(widen(eight.v[j]), unit * 8 + j));
      reinterpret_cast<Eight<T>*>(to)[unit] = y;
    } else {
      to[unit] = narrow<T>(value(widen(from[unit]), unit));
    }
  }
}

struct HeadTask {
  RowMap x, out;  // one row a head of a token
  Vector weight;
  const float *cos, *sin;  // [tokens, width / 2]
  int64_t heads, tokens, width;
  float eps;
  int style;                 // 0 none, 1 interleaved, 2 half split
  int64_t x_head, out_head;  // elements from head to head of a token
};

// A warp a head: any even width up to 1024.
template <typename T>
__global__ void __launch_bounds__(kThreads) head_rows(HeadTask task) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (row >= task.x.count) return;
  const int lane = threadIdx.x % 32;
  const int64_t width = task.width, half = width / 2, token = row / task.heads % task.tokens;
  const T* from = task.x.at<T>(row);
  T* to = task.out.at<T>(row);
  float inverse = 1;
  if (task.weight.data) {
    float squares = 0;
    for (int64_t i = lane; i < width; i += 32) squares += widen(from[i]) * widen(from[i]);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, offset);
    inverse = 1.0f / sqrtf(squares / static_cast<float>(width) + task.eps);
  }
  const auto normed = [&](int64_t i) {
    const float v = widen(from[i]);
    return task.weight.data ? widen(narrow<T>(v * inverse)) * element(task.weight, 0, i) : v;
  };
  if (task.style == 0) {
    for (int64_t i = lane; i < width; i += 32) {
      const float y = normed(i);
      to[i] = narrow<T>(y);
    }
    return;
  }
  // A pair is read and written by one lane, so that the rotation may happen in place.
  for (int64_t i = lane; i < half; i += 32) {
    const int64_t first = task.style == 1 ? 2 * i : i, second = task.style == 1 ? 2 * i + 1 : i + half;
    const float a = normed(first), b = normed(second);
    const float c = task.cos[token * half + i], s = task.sin[token * half + i];
    to[first] = narrow<T>(a * c - b * s);
    to[second] = narrow<T>(a * s + b * c);
  }
}

// Sixteen lanes a head of 128 elements, eight each; interleaved pairs. They take kHeads heads of a token, which share
// its angles, and ask for all of them before they use the first.
template <typename T, int kHeads>
__global__ void __launch_bounds__(256) head_rows_128(HeadTask task, const T* weight) {
  const int64_t group = static_cast<int64_t>(blockIdx.x) * 16 + threadIdx.x / 16, row = group * kHeads;
  if (row >= task.x.count) return;
  const int lane = threadIdx.x % 16;
  // 32 bits suffice for rows, and their division costs a quarter.
  const uint32_t token =
      static_cast<uint32_t>(row) / static_cast<uint32_t>(task.heads) % static_cast<uint32_t>(task.tokens);
  const T* from = task.x.at<T>(row);
  Eight<T> in[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) in[h] = reinterpret_cast<const Eight<T>*>(from + h * task.x_head)[lane];
  const float4 c = reinterpret_cast<const float4*>(task.cos + int64_t{64} * token)[lane];
  const float4 s = reinterpret_cast<const float4*>(task.sin + int64_t{64} * token)[lane];
  const float cs[4] = {c.x, c.y, c.z, c.w}, sn[4] = {s.x, s.y, s.z, s.w};
  Eight<T> w;
  if (weight) w = reinterpret_cast<const Eight<T>*>(weight)[lane];
  T* to = task.out.at<T>(row);
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    float v[8], squares = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[j] = widen(in[h].v[j]);
      squares += v[j] * v[j];
    }
    if (weight) {
      const unsigned mask = 0xffffu << (threadIdx.x % 32 / 16 * 16);
#pragma unroll
      for (int offset = 8; offset > 0; offset /= 2) squares += __shfl_xor_sync(mask, squares, offset);
      const float inverse = 1.0f / sqrtf(squares / 128.0f + task.eps);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = widen(narrow<T>(v[j] * inverse)) * widen(w.v[j]);
    }
    Eight<T> y;
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      y.v[2 * p] = narrow<T>(v[2 * p] * cs[p] - v[2 * p + 1] * sn[p]);
      y.v[2 * p + 1] = narrow<T>(v[2 * p] * sn[p] + v[2 * p + 1] * cs[p]);
    }
    reinterpret_cast<Eight<T>*>(to + h * task.out_head)[lane] = y;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    guidance_rows(RowMap cond, RowMap uncond, RowMap out, float scale, bool rescale) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32, width = cond.columns;
  if (row >= cond.count) return;
  const int lane = threadIdx.x % 32;
  const T *c = cond.at<T>(row), *u = uncond.at<T>(row);
  T* to = out.at<T>(row);
  const auto combined = [&](int64_t i) {
    const float uu = widen(u[i]);
    return widen(narrow<T>(uu + scale * (widen(c[i]) - uu)));
  };
  float cond_squares = 0, combined_squares = 0;
  for (int64_t i = lane; i < width; i += 32) {
    const float a = widen(c[i]), b = combined(i);
    cond_squares += a * a;
    combined_squares += b * b;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    cond_squares += __shfl_xor_sync(0xffffffffu, cond_squares, offset);
    combined_squares += __shfl_xor_sync(0xffffffffu, combined_squares, offset);
  }
  const float factor = rescale ? sqrtf(cond_squares) / sqrtf(combined_squares) : 1.0f;
  for (int64_t i = lane; i < width; i += 32) to[i] = narrow<T>(combined(i) * factor);
}

bool aligned(const View* view) {
  return view && reinterpret_cast<uintptr_t>(view->data) % 16 == 0 &&
         (view->rank < 2 || view->shape[0] == 1 || view->strides[0] % 8 == 0);
}

template <typename T>
BatchRows<T> batch_rows(const View* view) {
  return {static_cast<const T*>(view->data), view->strides[0]};
}

}  // namespace

Outcome gated_norm(const View* x, const View* gate, const View* y, View* sum, View* out, float eps, const View* scale,
                   const View* shift, int64_t rows_per_batch, void* fp8, float* fp8_scales, Stream stream) {
  const RowMap in = rows_of(*x), added = rows_of(*y), sums = rows_of(*sum), to = rows_of(*out);
  if (in.count == 0 || in.columns == 0) return Outcome::kDone;
  bool wide = in.columns <= 8 * kHeldUnits * kThreads;
  for (const View* view : {x, y, const_cast<const View*>(sum), const_cast<const View*>(out)})
    wide = wide && view->dtype == x->dtype && wide_rows(rows_of(*view), x->dtype);
  for (const View* view : {gate, scale, shift}) wide = wide && view->dtype == x->dtype && aligned(view);
  if (!wide) return unsupported("a gated norm of such rows");
  const Fp8Result small{static_cast<__nv_fp8_e4m3*>(fp8), fp8_scales};
  return for_float(x->dtype, "gated_norm of this dtype", [&]<typename T>(T) {
    const auto kernel = fp8 ? modulated_norm_rows<T, true, true> : modulated_norm_rows<T, true, false>;
    kernel<<<in.count, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(in, to, batch_rows<T>(scale),
                                                                         batch_rows<T>(shift), rows_per_batch, eps,
                                                                         added, sums, batch_rows<T>(gate), small);
    return launched("gated_norm");
  });
}

Outcome rms_norm(const View* x, const View* weight, View* out, float eps, Stream stream) {
  const RowMap in = rows_of(*x), to = rows_of(*out);
  if (in.count == 0 || in.columns == 0) return Outcome::kDone;
  const bool wide = wide_rows(in, x->dtype) && wide_rows(to, out->dtype);
  const auto s = static_cast<cudaStream_t>(stream);
  return for_float(x->dtype, "rms_norm of this dtype", [&]<typename T>(T) {
    if (wide && in.columns == 128 && x->dtype == out->dtype)
      rms_norm_128<T><<<(in.count + 7) / 8, kThreads, 0, s>>>(in, to, vector_of(weight), eps);
    else if (wide)
      rms_norm_rows<T, 8><<<in.count, kThreads, 0, s>>>(in, to, vector_of(weight), eps);
    else
      rms_norm_rows<T, 1><<<in.count, kThreads, 0, s>>>(in, to, vector_of(weight), eps);
    return launched("rms_norm");
  });
}

Outcome layer_norm(const View* x, View* out, float eps, const View* weight, const View* bias, const View* scale,
                   const View* shift, int64_t rows_per_batch, void* fp8, float* fp8_scales, Stream stream) {
  const RowMap in = rows_of(*x), to = rows_of(*out);
  if (in.count == 0 || in.columns == 0) return Outcome::kDone;
  const bool wide = wide_rows(in, x->dtype) && wide_rows(to, out->dtype);
  const auto s = static_cast<cudaStream_t>(stream);
  const bool modulated = wide && in.columns <= 8 * kHeldUnits * kThreads && scale && shift && !weight && !bias &&
                         scale->dtype == x->dtype && shift->dtype == x->dtype && aligned(scale) && aligned(shift);
  if (fp8 && !modulated) return unsupported("a norm of such rows with its result in fp8");
  const Fp8Result small{static_cast<__nv_fp8_e4m3*>(fp8), fp8_scales};
  return for_float(x->dtype, "layer_norm of this dtype", [&]<typename T>(T) {
    if (modulated) {
      const auto kernel = fp8 ? modulated_norm_rows<T, false, true> : modulated_norm_rows<T, false, false>;
      kernel<<<in.count, kThreads, 0, s>>>(in, to, batch_rows<T>(scale), batch_rows<T>(shift), rows_per_batch, eps, {},
                                           {}, {}, small);
    } else if (wide)
      layer_norm_rows<T, 8><<<in.count, kThreads, 0, s>>>(in, to, vector_of(weight), vector_of(bias), vector_of(scale),
                                                          vector_of(shift), rows_per_batch, eps);
    else
      layer_norm_rows<T, 1><<<in.count, kThreads, 0, s>>>(in, to, vector_of(weight), vector_of(bias), vector_of(scale),
                                                          vector_of(shift), rows_per_batch, eps);
    return launched("layer_norm");
  });
}

Outcome channel_norm(const View* x, const View* gamma, View* out, int with_silu, Stream stream) {
  const RowMap in = rows_of(*x), to = rows_of(*out);
  if (in.count == 0 || in.columns == 0) return Outcome::kDone;
  const bool wide = wide_rows(in, x->dtype) && wide_rows(to, out->dtype);
  const auto s = static_cast<cudaStream_t>(stream);
  const int64_t blocks = (in.count + kThreads / 32 - 1) / (kThreads / 32);
  return for_float(x->dtype, "channel_norm of this dtype", [&]<typename T>(T) {
    if (wide)
      channel_norm_rows<T, 8><<<blocks, kThreads, 0, s>>>(in, to, vector_of(gamma), with_silu != 0);
    else
      channel_norm_rows<T, 1><<<blocks, kThreads, 0, s>>>(in, to, vector_of(gamma), with_silu != 0);
    return launched("channel_norm");
  });
}

Outcome head_norm_rope(const View* x, View* out, const View* weight, float eps, int style, const float* cos,
                       const float* sin, Stream stream) {
  HeadTask task{rows_of(*x), rows_of(*out), vector_of(weight), cos, sin, x->shape[2], x->shape[1], x->shape[3], eps,
                style,       x->strides[2], out->strides[2]};
  if (task.x.count == 0 || task.width == 0) return Outcome::kDone;
  const auto s = static_cast<cudaStream_t>(stream);
  const bool quick = task.width == 128 && style == 1 && task.x.count < (int64_t{1} << 31) &&
                     wide_rows(task.x, x->dtype) && wide_rows(task.out, out->dtype) &&
                     (!weight || (weight->dtype == x->dtype && aligned(weight))) && x->dtype != kF32 &&
                     reinterpret_cast<uintptr_t>(cos) % 16 == 0 && reinterpret_cast<uintptr_t>(sin) % 16 == 0;
  return for_float(x->dtype, "head_norm_rope of this dtype", [&]<typename T>(T) {
    const T* of_heads = static_cast<const T*>(weight ? weight->data : nullptr);
    constexpr int kTogether = 4;
    if (quick && task.heads % kTogether == 0)
      head_rows_128<T, kTogether><<<(task.x.count / kTogether + 15) / 16, 256, 0, s>>>(task, of_heads);
    else if (quick)
      head_rows_128<T, 1><<<(task.x.count + 15) / 16, 256, 0, s>>>(task, of_heads);
    else
      head_rows<T><<<(task.x.count + kThreads / 32 - 1) / (kThreads / 32), kThreads, 0, s>>>(task);
    return launched("head_norm_rope");
  });
}

Outcome guidance(const View* cond, const View* uncond, View* out, float scale, int rescale, Stream stream) {
  const RowMap a = rows_of(*cond), b = rows_of(*uncond), to = rows_of(*out);
  if (a.count == 0 || a.columns == 0) return Outcome::kDone;
  const auto s = static_cast<cudaStream_t>(stream);
  return for_float(cond->dtype, "guidance of this dtype", [&]<typename T>(T) {
    guidance_rows<T>
        <<<(a.count + kThreads / 32 - 1) / (kThreads / 32), kThreads, 0, s>>>(a, b, to, scale, rescale != 0);
    return launched("guidance");
  });
}

}  // namespace lockstep::cuda
