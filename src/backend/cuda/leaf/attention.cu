// Attention without a library: a warp a query with a running softmax, for any dtype, width and mask. Slow and exact;
// large sizes go to cuDNN or to two matrix products around softmax().
#include "backend/cuda/leaf/device.cuh"
#include "backend/cuda/leaf/kernels.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kWarps = 4, kWidest = 512, kHeld = kWidest / 32;

__device__ __forceinline__ int segment_of(const int64_t* ends, int segments, int64_t token) {
  int segment = 0;
  while (segment < segments && token >= ends[segment]) ++segment;
  return segment;
}

template <typename T>
__global__ void __launch_bounds__(kWarps * 32) attention_queries(AttentionTask task) {
  const int64_t queries = task.q.shape[1], heads = task.q.shape[2], width = task.q.shape[3], keys = task.k.shape[1];
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (index >= task.q.shape[0] * heads * queries) return;
  const int lane = threadIdx.x % 32;
  const int64_t s = index % queries, h = index / queries % heads, b = index / queries / heads;
  const int64_t g = h / (heads / task.k.shape[2]);
  const T* q =
      static_cast<const T*>(task.q.data) + b * task.q.strides[0] + s * task.q.strides[1] + h * task.q.strides[2];
  const T* k = static_cast<const T*>(task.k.data) + b * task.k.strides[0] + g * task.k.strides[2];
  const T* v = static_cast<const T*>(task.v.data) + b * task.v.strides[0] + g * task.v.strides[2];
  const bool* mask = task.key_mask ? static_cast<const bool*>(task.key_mask) + b * task.key_mask_batch : nullptr;
  const int own = task.segments ? segment_of(task.segment_ends, task.segments, s) : 0;
  float query[kHeld], sum[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int64_t d = lane + 32 * i;
    query[i] = d < width ? widen(q[d * task.q.strides[3]]) : 0.0f;
    sum[i] = 0;
  }
  float largest = -INFINITY, total = 0;
  for (int64_t t = 0; t < keys; ++t) {
    if (task.causal && t > s + keys - queries) break;
    if (mask && !mask[t]) continue;
    if (task.segments && segment_of(task.segment_ends, task.segments, t) != own) continue;
    const T* key = k + t * task.k.strides[1];
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int64_t d = lane + 32 * i;
      if (d < width) dot += query[i] * widen(key[d * task.k.strides[3]]);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, offset);
    const float score = dot * task.scale;
    const float top = fmaxf(largest, score);
    const float keep = largest == -INFINITY ? 0.0f : expf(largest - top), weight = expf(score - top);
    total = total * keep + weight;
    const T* value = v + t * task.v.strides[1];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int64_t d = lane + 32 * i;
      if (d < width) sum[i] = sum[i] * keep + weight * widen(value[d * task.v.strides[3]]);
    }
    largest = top;
  }
  T* out = static_cast<T*>(task.out.data) + b * task.out.strides[0] + s * task.out.strides[1] + h * task.out.strides[2];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int64_t d = lane + 32 * i;
    if (d < width) out[d * task.out.strides[3]] = narrow<T>(sum[i] / total);
  }
}

constexpr int kSoftmaxThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kSoftmaxThreads) softmax_rows(SoftmaxTask task) {
  const int64_t row = blockIdx.x, query = task.first_query + row;
  const float* scores = task.scores + row * task.keys;
  T* weights = static_cast<T*>(task.weights) + row * task.keys;
  const bool* mask = static_cast<const bool*>(task.key_mask);
  const int own = task.segments ? segment_of(task.segment_ends, task.segments, query) : 0;
  const auto seen = [&](int64_t t) {
    if (task.causal && t > query + task.causal_reach) return false;
    if (mask && !mask[t]) return false;
    return !task.segments || segment_of(task.segment_ends, task.segments, t) == own;
  };
  __shared__ float partial[kSoftmaxThreads / 32];
  float largest = -INFINITY;
  for (int64_t t = threadIdx.x; t < task.keys; t += kSoftmaxThreads)
    if (seen(t)) largest = fmaxf(largest, scores[t]);
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int i = 0; i < kSoftmaxThreads / 32; ++i) largest = fmaxf(largest, partial[i]);
  __syncthreads();
  float total = 0;
  for (int64_t t = threadIdx.x; t < task.keys; t += kSoftmaxThreads)
    if (seen(t)) total += expf(scores[t] - largest);
  total = block_sum<kSoftmaxThreads>(total);
  for (int64_t t = threadIdx.x; t < task.keys; t += kSoftmaxThreads)
    weights[t] = narrow<T>(seen(t) ? expf(scores[t] - largest) / total : 0.0f / total);
}

}  // namespace

Outcome attention(const AttentionTask* task, Stream stream) {
  const int64_t count = task->q.shape[0] * task->q.shape[1] * task->q.shape[2];
  if (count == 0 || task->q.shape[3] == 0) return Outcome::kDone;
  if (task->q.shape[3] > kWidest) return unsupported("attention of heads this wide");
  return for_float(task->q.dtype, "attention of this dtype", [&]<typename T>(T) {
    attention_queries<T><<<(count + kWarps - 1) / kWarps, kWarps * 32, 0, static_cast<cudaStream_t>(stream)>>>(*task);
    return launched("attention");
  });
}

Outcome softmax(const SoftmaxTask* task, Stream stream) {
  if (task->rows == 0) return Outcome::kDone;
  return for_float(task->dtype, "softmax to this dtype", [&]<typename T>(T) {
    softmax_rows<T><<<task->rows, kSoftmaxThreads, 0, static_cast<cudaStream_t>(stream)>>>(*task);
    return launched("softmax");
  });
}

}  // namespace lockstep::cuda
