// torch's CUDA generator: Philox4x32-10, four normals a counter by Box-Muller, spread over the grid that torch would
// launch on this device.
#include <algorithm>

#include "backend/cuda/leaf/context.h"
#include "backend/cuda/leaf/device.cuh"
#include "backend/cuda/leaf/kernels.cuh"

namespace lockstep::cuda {
namespace {

__device__ uint4 philox(uint2 key, uint4 counter) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
    counter = make_uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return counter;
}

__device__ float2 box_muller(uint32_t x, uint32_t y) {
  const float u = x * 2.3283064e-10f + (2.3283064e-10f / 2.0f);
  const float v = y * (2.3283064e-10f * 6.2831855f) + ((2.3283064e-10f * 6.2831855f) / 2.0f);
  const float radius = sqrtf(-2.0f * logf(u));
  float2 result;
  __sincosf(v, &result.x, &result.y);
  result.x *= radius;
  result.y *= radius;
  return result;
}

template <typename T>
__global__ void normals(uint64_t seed, T* out, int64_t count, int64_t threads) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const uint2 key = make_uint2(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  uint32_t round = 0;
  for (int64_t base = 0; base < count; base += 4 * threads, ++round) {
    const uint4 drawn = philox(key, make_uint4(round, 0, static_cast<uint32_t>(thread),
                                               static_cast<uint32_t>(static_cast<uint64_t>(thread) >> 32)));
    const float2 a = box_muller(drawn.x, drawn.y), b = box_muller(drawn.z, drawn.w);
    const float four[4] = {a.x, a.y, b.x, b.y};
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const int64_t at = base + thread + threads * m;
      if (at < count) out[at] = narrow<T>(four[m]);
    }
  }
}

}  // namespace

Outcome philox_normals(Context context, uint64_t seed, View* out, Stream stream) {
  const Device& device = *static_cast<const Device*>(context);
  int64_t count = 1;
  for (int axis = 0; axis < out->rank; ++axis) count *= out->shape[axis];
  if (count == 0) return Outcome::kDone;
  constexpr int64_t kBlock = 256;
  const int64_t most = static_cast<int64_t>(device.properties.multiProcessorCount) *
                       (device.properties.maxThreadsPerMultiProcessor / kBlock);
  const int64_t grid = std::min((count + kBlock - 1) / kBlock, most);
  return for_float(out->dtype, "normals of this dtype", [&]<typename T>(T) {
    normals<T><<<grid, kBlock, 0, static_cast<cudaStream_t>(stream)>>>(seed, static_cast<T*>(out->data), count,
                                                                       grid * kBlock);
    return launched("normals");
  });
}

}  // namespace lockstep::cuda
