// Products of up to 128 rows with 4-bit weights, which are unpacked in registers on their way into the tensor cores.
// So few rows (a prompt's, or the modulations') read weights and do little else, and packed ones are a quarter of the
// bytes. K is cut into parts for the chip to be full; a second kernel adds them up.
#include "backend/cuda/leaf/device.cuh"
#include "backend/cuda/leaf/kernels.cuh"

namespace lockstep::cuda {
namespace {

using T = __nv_bfloat16;

constexpr int kWarps = 4, kStep = 128;     // of K: 16 words of a row
constexpr int kRowBytes = kStep * 2 + 64;  // of x in shared memory: two rows lie in different banks
constexpr int kWordBytes = kStep / 2;      // of a row of weights
template <int kTiles>
constexpr int kStagesOf = kTiles > 8 ? 2 : 3;  // steps on their way; two blocks share a multiprocessor

struct PackedTask {
  const uint32_t* words;        // [n, k / 8]
  const void *scales, *biases;  // T [n, k / group]
  const void* x;                // T [rows, k]
  int64_t x_row;                // elements
  float* parts;                 // [parts, rows, n]
  int rows, n, k, group, steps_a_part;
};

__device__ __forceinline__ void fetch_16(uint32_t to, const void* from, bool there) {
  const int bytes = there ? 16 : 0;  // the rest is zeros
  // A row's next steps come along into the second cache: 64 bytes of it at a time are little for the memory.
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

struct Pairs {
  using Two = __nv_bfloat162;
  static constexpr uint32_t kMagic = 0x43004300u;  // 128, whose last bits count ones
  static constexpr float kOffset = 128;
  static __device__ __forceinline__ Two both(__nv_bfloat16 x) { return __bfloat162bfloat162(x); }
  static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};
// Values 2 * pair and 2 * pair + 1 of a word, rounded to bf16 as dequantise() rounds them.
__device__ __forceinline__ uint32_t unpacked(uint32_t word, int pair, Pairs::Two scale, Pairs::Two bias) {
  using Two = Pairs::Two;
  const uint32_t eight = word >> (8 * pair) & 0xffu;
  const uint32_t raw = ((eight | eight << 12) & 0x000f000fu) | Pairs::kMagic;
  const Two whole = __hsub2(*reinterpret_cast<const Two*>(&raw), Pairs::both(narrow<T>(Pairs::kOffset)));
  const Two value = __hfma2(whole, scale, bias);
  return *reinterpret_cast<const uint32_t*>(&value);
}

template <int kTiles, int kSets>
constexpr int kStageBytes = kTiles * 8 * kRowBytes + kWarps * 16 * kSets* kWordBytes;  // x, then words

// Four lanes share a row of weights: in a step each takes 32 values of it, four words, all of one group. Which of its
// values meet in one instruction is free, as long as those of x are the same.
template <int kTiles, int kSets>
__global__ void __launch_bounds__(kWarps * 32) packed_parts(PackedTask task) {
  using Two = Pairs::Two;
  constexpr int kThreads = kWarps * 32, kColumns = kWarps * 16 * kSets, kBytes = kStageBytes<kTiles, kSets>;
  constexpr int kStages = kStagesOf<kTiles>;
  extern __shared__ __align__(16) char buffer[];
  const int lane = threadIdx.x % 32, quad = lane / 4, third = lane % 4;
  const int in_block = static_cast<int>(threadIdx.x) / 32 * 16 * kSets;  // the warp's first column of the block's
  const int block_first = static_cast<int>(blockIdx.x) * kColumns, first = block_first + in_block;
  const int steps = task.k / kStep, begin = static_cast<int>(blockIdx.y) * task.steps_a_part;
  const int end = min(steps, begin + task.steps_a_part), groups = task.k / task.group;
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(buffer));
  const T* x = static_cast<const T*>(task.x);
  const auto fetch = [&](int step) {
    if (step < end) {
      const uint32_t stage = shared + static_cast<uint32_t>((step - begin) % kStages * kBytes);
#pragma unroll
      for (int i = 0; i < kTiles * 8 * (kStep / 8) / kThreads; ++i) {
        const int unit = static_cast<int>(threadIdx.x) + i * kThreads, row = unit / 16, u = unit % 16;
        const bool there = row < task.rows;
        // Lanes that read together find their units side by side.
        fetch_16(stage + static_cast<uint32_t>(row * kRowBytes + (u % 4 * 4 + u / 4) * 16),
                 x + (there ? row : 0) * task.x_row + step * kStep + u * 8, there);
      }
      const uint32_t words = stage + static_cast<uint32_t>(kTiles * 8 * kRowBytes);
#pragma unroll
      for (int i = 0; i < kColumns * 4 / kThreads; ++i) {
        const int unit = static_cast<int>(threadIdx.x) + i * kThreads, row = unit / 4;
        const int64_t column = min(block_first + row, task.n - 1);
        fetch_16(words + static_cast<uint32_t>(unit * 16),
                 task.words + column * (task.k / 8) + step * (kStep / 8) + unit % 4 * 4, true);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");  // an empty one counts as well
  };
  T scales[2 * kSets], biases[2 * kSets];
  const auto fetch_scales = [&](int step) {
#pragma unroll
    for (int r = 0; r < 2 * kSets; ++r) {
      const int64_t column = min(first + quad + 8 * r, task.n - 1);
      const int64_t group = column * groups + (min(step, end - 1) * kStep + third * 32) / task.group;
      scales[r] = static_cast<const T*>(task.scales)[group];
      biases[r] = static_cast<const T*>(task.biases)[group];
    }
  };
  float sums[kSets][kTiles][4] = {};
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) fetch(begin + i);
  fetch_scales(begin);
  for (int step = begin; step < end; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();  // and everyone is done with the stage that is fetched into next
    fetch(step + kStages - 1);
    Two scale[2 * kSets], bias[2 * kSets];
#pragma unroll
    for (int r = 0; r < 2 * kSets; ++r) {
      scale[r] = Pairs::both(scales[r]);
      bias[r] = Pairs::both(biases[r]);
    }
    fetch_scales(step + 1);
    const char* stage = buffer + (step - begin) % kStages * kBytes;
    uint4 now[2 * kSets];
#pragma unroll
    for (int r = 0; r < 2 * kSets; ++r)
      now[r] = *reinterpret_cast<const uint4*>(stage + kTiles * 8 * kRowBytes + (in_block + quad + 8 * r) * kWordBytes +
                                               third * 16);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t a[kSets][2][4];
#pragma unroll
      for (int set = 0; set < kSets; ++set)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const uint4& four = now[2 * set + r];
          const uint32_t word = j == 0 ? four.x : j == 1 ? four.y : j == 2 ? four.z : four.w;
#pragma unroll
          for (int pair = 0; pair < 4; ++pair)
            a[set][pair / 2][pair % 2 * 2 + r] = unpacked(word, pair, scale[2 * set + r], bias[2 * set + r]);
        }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4 b = *reinterpret_cast<const uint4*>(stage + (tile * 8 + quad) * kRowBytes + (j * 4 + third) * 16);
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
          Pairs::multiply(sums[set][tile], a[set][0], b.x, b.y);
          Pairs::multiply(sums[set][tile], a[set][1], b.z, b.w);
        }
      }
    }
  }
  float* part = task.parts + static_cast<int64_t>(blockIdx.y) * task.rows * task.n;
#pragma unroll
  for (int set = 0; set < kSets; ++set)
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = first + set * 16 + quad + i / 2 * 8, row = tile * 8 + third * 2 + i % 2;
        if (column < task.n && row < task.rows) part[static_cast<int64_t>(row) * task.n + column] = sums[set][tile][i];
      }
}

__global__ void __launch_bounds__(256) sum_parts(const float* parts, int count, int64_t rows, int64_t n, const T* bias,
                                                 bool gelu, T* out, int64_t out_row) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (at >= rows * n) return;
  float sum = 0;
  for (int part = 0; part < count; ++part) sum += parts[part * rows * n + at];
  const int64_t row = at / n, column = at % n;
  if (bias) sum += widen(bias[column]);
  out[row * out_row + column] = narrow<T>(gelu ? gelu_tanh(sum) : sum);
}

template <int kTiles, int kSets>
Outcome launch_parts(const PackedTask& task, int parts, cudaStream_t stream) {
  constexpr int kBytes = kStagesOf<kTiles> * kStageBytes<kTiles, kSets>;
  static const cudaError_t raised =
      cudaFuncSetAttribute(packed_parts<kTiles, kSets>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (raised != cudaSuccess) return checked(raised, "packed product");
  constexpr int kColumns = kWarps * 16 * kSets;
  packed_parts<kTiles, kSets><<<dim3((task.n + kColumns - 1) / kColumns, parts), kWarps * 32, kBytes, stream>>>(task);
  return launched("packed product");
}

}  // namespace

Outcome packed_product(const QuantisedTask* task, const View* x, const void* bias, int gelu, float* parts, View* out,
                       Stream stream) {
  const RowMap in = rows_of(*x), to = rows_of(*out);
  if (in.count == 0 || task->n == 0) return Outcome::kDone;
  const int count = packed_parts_of(*task, in.count);
  const bool suits = count > 0 && x->dtype == kBF16 && out->dtype == kBF16 && task->scales.dtype == kBF16 &&
                     task->biases.dtype == kBF16 && in.axes == 1 && to.axes == 1 && wide_rows(in, x->dtype) &&
                     reinterpret_cast<uintptr_t>(task->words) % 16 == 0;
  if (!suits) return unsupported("a packed product of this kind");
  const int steps = static_cast<int>(task->k / kStep);
  const PackedTask made{task->words,
                        task->scales.data,
                        task->biases.data,
                        in.base,
                        in.stride[0],
                        parts,
                        static_cast<int>(in.count),
                        static_cast<int>(task->n),
                        static_cast<int>(task->k),
                        task->group_size,
                        (steps + count - 1) / count};
  const auto s = static_cast<cudaStream_t>(stream);
  const Outcome outcome = in.count <= 16   ? launch_parts<2, 2>(made, count, s)
                          : in.count <= 64 ? launch_parts<8, 2>(made, count, s)
                                           : launch_parts<16, 1>(made, count, s);
  if (outcome != Outcome::kDone) return outcome;
  sum_parts<<<(in.count * task->n + 255) / 256, 256, 0, s>>>(
      parts, count, in.count, task->n, static_cast<const T*>(bias), gelu != 0, static_cast<T*>(to.base), to.stride[0]);
  return launched("packed product");
}

}  // namespace lockstep::cuda
