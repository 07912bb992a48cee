// Element types, rows and reductions as kernels see them.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "backend/cuda/leaf.h"

namespace lockstep::cuda {

// lockstep::DType, by its values.
inline constexpr int kF32 = 1, kF16 = 2, kBF16 = 3, kF8 = 4, kI64 = 9, kU8 = 10, kBool = 14;

Outcome failed(const char* what);                       // remembers it for Leaf::message
Outcome unsupported(const char* what);                  // likewise
Outcome checked(cudaError_t status, const char* what);  // kDone, kNoMemory or kFailed
inline Outcome launched(const char* what) {
  return checked(cudaGetLastError(), what);
}

template <typename T>
__device__ __forceinline__ float widen(T x) {
  return static_cast<float>(x);
}
template <typename T>
__device__ __forceinline__ T narrow(float x) {
  return T(x);
}
template <>
__device__ __forceinline__ float widen(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <>
__device__ __forceinline__ float widen(__half x) {
  return __half2float(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 narrow(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half narrow(float x) {
  return __float2half_rn(x);
}

// Eight elements at a time where addresses allow: 16 bytes of a small float.
template <typename T>
struct alignas(sizeof(T) * 8 > 16 ? 16 : sizeof(T) * 8) Eight {
  T v[8];
};

// Rows of a view's contiguous last axis, whatever the strides before it; neighbouring axes are merged.
struct RowMap {
  void* base;
  int axes;
  int64_t count, columns, size[kMostAxes], stride[kMostAxes];

  template <typename T>
  __device__ __forceinline__ T* at(int64_t row) const {
    T* data = static_cast<T*>(base);
    if (axes == 1) return data + row * stride[0];
    int64_t offset = 0;
#pragma unroll 1  // the division is long code, and so many axes are rare
    for (int axis = axes - 1; axis >= 0; --axis) {
      const int64_t above = row / size[axis];
      offset += (row - above * size[axis]) * stride[axis];
      row = above;
    }
    return data + offset;
  }
};

inline int bytes_of(int dtype) {
  constexpr int kBytes[] = {8, 4, 2, 2, 1, 1, 1, 2, 4, 8, 1, 2, 4, 8, 1};
  return dtype >= 0 && dtype < 15 ? kBytes[dtype] : 1;
}

inline RowMap rows_of(const View& view) {
  RowMap map{};
  map.base = view.data;
  map.columns = view.rank ? view.shape[view.rank - 1] : 1;
  map.count = 1;
  for (int axis = 0; axis + 1 < view.rank; ++axis) {
    const int64_t size = view.shape[axis], stride = view.strides[axis];
    map.count *= size;
    if (size == 1) continue;
    if (map.axes > 0 && map.stride[map.axes - 1] == stride * size) {
      map.size[map.axes - 1] *= size;
      map.stride[map.axes - 1] = stride;
    } else {
      map.size[map.axes] = size;
      map.stride[map.axes++] = stride;
    }
  }
  if (map.axes == 0) {
    map.size[0] = 1;
    map.stride[map.axes++] = map.columns;
  }
  return map;
}

inline bool unit_columns(const View& view) {
  return view.rank == 0 || view.shape[view.rank - 1] <= 1 || view.strides[view.rank - 1] == 1;
}

// Whether every row can be read eight elements at a time.
inline bool wide_rows(const RowMap& map, int dtype) {
  const int64_t item = bytes_of(dtype), unit = item * 8 > 16 ? 16 : item * 8;
  if (map.columns % 8 != 0 || reinterpret_cast<uintptr_t>(map.base) % unit != 0) return false;
  for (int axis = 0; axis < map.axes; ++axis)
    if (map.size[axis] > 1 && map.stride[axis] * item % unit != 0) return false;
  return true;
}

template <int kThreads>
__device__ __forceinline__ float block_sum(float value) {
  constexpr int kWarps = kThreads / 32;
  __shared__ float partial[kWarps];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  if constexpr (kWarps == 1) return value;
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) sum += partial[i];
  __syncthreads();
  return sum;
}

__device__ __forceinline__ float silu(float x) {
  return x / (1.0f + expf(-x));
}
__device__ __forceinline__ float gelu_erf(float x) {
  return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}
__device__ __forceinline__ float gelu_tanh(float x) {
  return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
}

// Calls function(T{}) with the type of a small float or f32.
template <typename Function>
Outcome for_float(int dtype, const char* what, Function&& function) {
  switch (dtype) {
    case kF32:
      return function(float{});
    case kF16:
      return function(__half{});
    case kBF16:
      return function(__nv_bfloat16{});
    default:
      return unsupported(what);
  }
}

}  // namespace lockstep::cuda
