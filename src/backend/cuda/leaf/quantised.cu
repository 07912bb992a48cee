// MLX's affine weights: value = scale * q + bias for each group along K, q a little-endian stream of `bits` bits. For
// few rows the product reads the packed words itself; for many the weights are unpacked into a buffer first. And rows
// of e4m3 with a scale each.
#include "backend/cuda/leaf/device.cuh"
#include "backend/cuda/leaf/fp8.cuh"
#include "backend/cuda/leaf/kernels.cuh"

namespace lockstep::cuda {
namespace {

__device__ __forceinline__ float scale_at(const View& view, int64_t at) {
  if (view.dtype == kF32) return static_cast<const float*>(view.data)[at];
  if (view.dtype == kBF16) return widen(static_cast<const __nv_bfloat16*>(view.data)[at]);
  return widen(static_cast<const __half*>(view.data)[at]);
}

__device__ __forceinline__ uint32_t packed_at(const uint32_t* row, int bits, int64_t i) {
  const int64_t bit = i * bits, word = bit / 32;
  const int shift = static_cast<int>(bit % 32);
  uint64_t stream = row[word];
  if (shift + bits > 32) stream |= static_cast<uint64_t>(row[word + 1]) << 32;
  return static_cast<uint32_t>(stream >> shift) & ((1u << bits) - 1u);
}

template <typename T>
__global__ void dequantise_elements(QuantisedTask task, T* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= task.n * task.k) return;
  const int64_t row = i / task.k, column = i % task.k, groups = task.k / task.group_size;
  const int64_t group = row * groups + column / task.group_size;
  const uint32_t q = packed_at(task.words + row * (task.k * task.bits / 32), task.bits, column);
  out[i] = narrow<T>(scale_at(task.scales, group) * static_cast<float>(q) + scale_at(task.biases, group));
}

constexpr int kWordsAThread = 4;

// 4 bits, a word (eight values of one group) at a time: neighbouring threads have neighbouring words, so that a warp
// writes 512 bytes in one go.
template <typename T>
__global__ void __launch_bounds__(256) dequantise_words(const uint32_t* words, View scales, View biases,
                                                        int words_a_group_log2, int64_t count, Eight<T>* out) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (256 * kWordsAThread) + threadIdx.x;
  uint32_t held[kWordsAThread];
#pragma unroll
  for (int i = 0; i < kWordsAThread; ++i)
    if (first + i * 256 < count) held[i] = words[first + i * 256];
#pragma unroll
  for (int i = 0; i < kWordsAThread; ++i) {
    const int64_t at = first + i * 256;
    if (at >= count) return;
    const int64_t group = at >> words_a_group_log2;  // groups of a row follow each other as its words do
    const float scale = scale_at(scales, group), bias = scale_at(biases, group);
    Eight<T> y;
#pragma unroll
    for (int j = 0; j < 8; ++j) y.v[j] = narrow<T>(scale * static_cast<float>(held[i] >> (4 * j) & 15u) + bias);
    out[at] = y;
  }
}

// A warp an output, all rows of x against it: K is read once for up to kRows rows.
template <typename T, int kRows>
__global__ void __launch_bounds__(128)
    quantised_products(QuantisedTask task, RowMap x, const T* bias, RowMap out, int64_t first_row) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * 4 + threadIdx.x / 32;
  if (n >= task.n) return;
  const int lane = threadIdx.x % 32;
  const int64_t groups = task.k / task.group_size;
  const uint32_t* row = task.words + n * (task.k * task.bits / 32);
  const T* from[kRows];
  float sum[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    from[r] = first_row + r < x.count ? x.at<T>(first_row + r) : nullptr;
    sum[r] = 0;
  }
  if (task.bits == 4) {
    for (int64_t word = lane; word < task.k / 8; word += 32) {
      const int64_t group = n * groups + word * 8 / task.group_size;
      const float scale = scale_at(task.scales, group), shift = scale_at(task.biases, group);
      const uint32_t q = row[word];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float w = widen(narrow<T>(scale * static_cast<float>(q >> (4 * j) & 15u) + shift));
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          if (from[r]) sum[r] += w * widen(from[r][word * 8 + j]);
      }
    }
  } else {
    for (int64_t i = lane; i < task.k; i += 32) {
      const int64_t group = n * groups + i / task.group_size;
      const float w = widen(narrow<T>(scale_at(task.scales, group) * static_cast<float>(packed_at(row, task.bits, i)) +
                                      scale_at(task.biases, group)));
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (from[r]) sum[r] += w * widen(from[r][i]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], offset);
    if (lane == 0 && from[r]) out.at<T>(first_row + r)[n] = narrow<T>(sum[r] + (bias ? widen(bias[n]) : 0.0f));
  }
}

// A block a row, which each thread holds kHeld units of.
template <typename T, int kHeld>
__global__ void __launch_bounds__(256) fp8_rows(RowMap x, __nv_fp8_e4m3* out, float* scales) {
  const int64_t row = blockIdx.x;
  const int units = static_cast<int>(x.columns / 8);
  const Eight<T>* from = reinterpret_cast<const Eight<T>*>(x.at<T>(row));
  Eight<T> held[kHeld];
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int unit = static_cast<int>(threadIdx.x) + i * 256;
    if (unit < units) held[i] = from[unit];
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (static_cast<int>(threadIdx.x) + i * 256 >= units) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j) largest = fmaxf(largest, fabsf(widen(held[i].v[j])));
  }
  const float scale = fp8_scale(block_largest<256>(largest)), divide = 1.0f / scale;
  if (threadIdx.x == 0) scales[row] = scale;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int unit = static_cast<int>(threadIdx.x) + i * 256;
    if (unit < units) write_fp8(held[i], divide, out + row * x.columns + unit * 8);
  }
}

template <typename T>
__global__ void from_fp8_elements(const __nv_fp8_e4m3* rows, const float* scales, Eight<T>* out, int64_t units,
                                  int64_t units_a_row) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= units) return;
  const float scale = scales[i / units_a_row];
  const uint2 packed = reinterpret_cast<const uint2*>(rows)[i];
  const auto* from = reinterpret_cast<const __nv_fp8_e4m3*>(&packed);
  Eight<T> y;
#pragma unroll
  for (int j = 0; j < 8; ++j) y.v[j] = narrow<T>(static_cast<float>(from[j]) * scale);
  out[i] = y;
}

}  // namespace

Outcome from_fp8_rows(const void* rows, const float* scales, View* out, Stream stream) {
  const RowMap to = rows_of(*out);
  if (to.count == 0 || to.columns == 0) return Outcome::kDone;
  if (to.axes > 1 || to.stride[0] != to.columns || !wide_rows(to, out->dtype))
    return unsupported("rows that are not whole units of eight");
  const int64_t units = to.count * to.columns / 8;
  return for_float(out->dtype, "fp8 to this dtype", [&]<typename T>(T) {
    from_fp8_elements<T><<<(units + 255) / 256, 256, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __nv_fp8_e4m3*>(rows), scales, static_cast<Eight<T>*>(out->data), units, to.columns / 8);
    return launched("from_fp8_rows");
  });
}

Outcome dequantise(const QuantisedTask* task, View* out, Stream stream) {
  const int64_t count = task->n * task->k;
  if (count == 0) return Outcome::kDone;
  const auto s = static_cast<cudaStream_t>(stream);
  return for_float(out->dtype, "dequantise to this dtype", [&]<typename T>(T) {
    if (task->bits == 4) {
      const int log2 = task->group_size == 32 ? 2 : task->group_size == 64 ? 3 : 4;
      const int64_t words = count / 8, block = 256 * kWordsAThread;
      dequantise_words<T><<<(words + block - 1) / block, 256, 0, s>>>(task->words, task->scales, task->biases, log2,
                                                                      words, static_cast<Eight<T>*>(out->data));
    } else
      dequantise_elements<T><<<(count + 255) / 256, 256, 0, s>>>(*task, static_cast<T*>(out->data));
    return launched("dequantise");
  });
}

Outcome quantised_rows(const QuantisedTask* task, const View* x, const void* bias, View* out, Stream stream) {
  const RowMap in = rows_of(*x), to = rows_of(*out);
  if (in.count == 0 || task->n == 0) return Outcome::kDone;
  const auto s = static_cast<cudaStream_t>(stream);
  return for_float(x->dtype, "quantised product of this dtype", [&]<typename T>(T) {
    for (int64_t row = 0; row < in.count; row += 4) {
      if (in.count - row == 1)
        quantised_products<T, 1><<<(task->n + 3) / 4, 128, 0, s>>>(*task, in, static_cast<const T*>(bias), to, row);
      else
        quantised_products<T, 4><<<(task->n + 3) / 4, 128, 0, s>>>(*task, in, static_cast<const T*>(bias), to, row);
    }
    return launched("quantised product");
  });
}

Outcome to_fp8_rows(const View* x, void* out, float* scales, Stream stream) {
  const RowMap in = rows_of(*x);
  if (in.count == 0) return Outcome::kDone;
  if (!wide_rows(in, x->dtype) || in.columns > 8 * 2048)
    return unsupported("rows that are not whole units of eight, or wider than 16384");
  return for_float(x->dtype, "fp8 from this dtype", [&]<typename T>(T) {
    const auto s = static_cast<cudaStream_t>(stream);
    auto* to = static_cast<__nv_fp8_e4m3*>(out);
    if (in.columns <= 2 * 2048)
      fp8_rows<T, 2><<<in.count, 256, 0, s>>>(in, to, scales);
    else
      fp8_rows<T, 8><<<in.count, 256, 0, s>>>(in, to, scales);
    return launched("fp8 rows");
  });
}

}  // namespace lockstep::cuda
