// A row in e4m3: divided by what brings its largest element to the type's largest.
#pragma once
#include <cuda_fp8.h>

#include "backend/cuda/leaf/device.cuh"

namespace lockstep::cuda {

__device__ __forceinline__ float fp8_scale(float largest) {
  constexpr float kLargestE4m3 = 448.0f;
  return largest > 0 ? largest / kLargestE4m3 : 1.0f;
}

template <typename T>
__device__ __forceinline__ void write_fp8(const Eight<T>& eight, float divide, __nv_fp8_e4m3* to) {
  __nv_fp8_e4m3 y[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) y[j] = __nv_fp8_e4m3(widen(eight.v[j]) * divide);
  *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(y);
}

template <int kThreads>
__device__ __forceinline__ float block_largest(float value) {
  constexpr int kWarps = kThreads / 32;
  __shared__ float partial[kWarps];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kWarps; ++i) value = fmaxf(value, partial[i]);
  return value;
}

}  // namespace lockstep::cuda
