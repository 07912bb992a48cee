// What recording needs of a tensor whose values stay on the device: moments of its parts, and the sums that its
// checksum is made of (tensor/checksum_blocks.h). Both in one pass over the bytes.
#include "backend/cuda/leaf/device.cuh"
#include "backend/cuda/leaf/kernels.cuh"
#include "tensor/checksum_blocks.h"

namespace lockstep::cuda {
namespace {

constexpr int kWarps = 8, kBlocksAWarp = kDigestBlocksAPart / kWarps;
static_assert(kDigestBlocksAPart % kWarps == 0 && kDigestBlock == static_cast<int>(kChecksumBlock));

__constant__ const uint64_t kSecret[24] = {
    kChecksumSecret[0],  kChecksumSecret[1],  kChecksumSecret[2],  kChecksumSecret[3],  kChecksumSecret[4],
    kChecksumSecret[5],  kChecksumSecret[6],  kChecksumSecret[7],  kChecksumSecret[8],  kChecksumSecret[9],
    kChecksumSecret[10], kChecksumSecret[11], kChecksumSecret[12], kChecksumSecret[13], kChecksumSecret[14],
    kChecksumSecret[15], kChecksumSecret[16], kChecksumSecret[17], kChecksumSecret[18], kChecksumSecret[19],
    kChecksumSecret[20], kChecksumSecret[21], kChecksumSecret[22], kChecksumSecret[23]};

struct Pair {
  uint64_t first, second;
};

__device__ __forceinline__ uint64_t mixed(uint64_t word, uint64_t key) {
  const uint64_t x = word ^ key;
  return (x & 0xffffffffu) * (x >> 32);
}

struct Found {
  double sum = 0, squares = 0;
  float least = INFINITY, most = -INFINITY;
  uint32_t zero = 0, denormal = 0, nan = 0, inf = 0;

  __device__ __forceinline__ void add(float x, float normal) {
    const float size = fabsf(x);
    if (size <= 3.402823466e38f) {
      const double wide = x;
      sum += wide;
      squares += wide * wide;
      least = fminf(least, x);
      most = fmaxf(most, x);
      if (size < normal) {
        if (x == 0)
          ++zero;
        else
          ++denormal;
      }
    } else if (isnan(x)) {
      ++nan;
    } else {
      ++inf;
    }
  }
  __device__ __forceinline__ void join(const Found& other) {
    sum += other.sum;
    squares += other.squares;
    least = fminf(least, other.least);
    most = fmaxf(most, other.most);
    zero += other.zero;
    denormal += other.denormal;
    nan += other.nan;
    inf += other.inf;
  }
};

template <typename T>
__device__ __forceinline__ void add_unit(Found& found, const uint4& unit, float normal) {
  const T* values = reinterpret_cast<const T*>(&unit);
#pragma unroll
  for (int i = 0; i < static_cast<int>(16 / sizeof(T)); ++i) found.add(widen(values[i]), normal);
}

// bf16, two values at a time. Where all eight are normal numbers, as nearly everywhere, nothing is left to be counted.
template <>
__device__ __forceinline__ void add_unit<__nv_bfloat16>(Found& found, const uint4& unit, float normal) {
  const uint32_t words[4] = {unit.x, unit.y, unit.z, unit.w};
  constexpr uint32_t kSigns = 0x80008000u, kExponent = 0x00800080u;  // its lowest bit
  uint32_t largest = 0, smallest = ~kSigns;
#pragma unroll
  for (const uint32_t word : words) {
    largest = __vmaxu2(largest, word & ~kSigns);
    smallest = __vminu2(smallest, word & ~kSigns);
  }
  if (((largest + kExponent) | ~((smallest | kSigns) - kExponent)) & kSigns) {
    const auto* values = reinterpret_cast<const __nv_bfloat16*>(&unit);
#pragma unroll
    for (int i = 0; i < 8; ++i) found.add(widen(values[i]), normal);
    return;
  }
  using Two = __nv_bfloat162;
  const auto two = [&](int i) { return *reinterpret_cast<const Two*>(&words[i]); };
  const Two least = __hmin2(__hmin2(two(0), two(1)), __hmin2(two(2), two(3)));
  const Two most = __hmax2(__hmax2(two(0), two(1)), __hmax2(two(2), two(3)));
  found.least = fminf(found.least, fminf(__low2float(least), __high2float(least)));
  found.most = fmaxf(found.most, fmaxf(__low2float(most), __high2float(most)));
#pragma unroll
  for (const uint32_t word : words)
#pragma unroll
    for (const uint32_t bits : {word << 16, word & 0xffff0000u}) {
      const double wide = __uint_as_float(bits);
      found.sum += wide;
      found.squares += wide * wide;
    }
}

template <typename V>
__device__ __forceinline__ V from_lane(V value, int offset) {
  return __shfl_xor_sync(0xffffffffu, value, offset);
}

// A block of threads a part, a warp a block of the checksum at a time. Lane l has the units l and l + 32 of 16 bytes:
// lanes 2 * (l % 4) and the next of the stripes l / 4 and l / 4 + 8.
template <typename T>
__global__ void __launch_bounds__(kWarps * 32)
    digest_parts(const uint4* data, DigestLayout layout, float normal, std::byte* result) {
  const int64_t blocks = layout.blocks;
  Pair* sums = reinterpret_cast<Pair*>(result);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, word = lane / 4 + 2 * (lane % 4);
  const uint64_t keys[4] = {kSecret[word], kSecret[word + 1], kSecret[word + 8], kSecret[word + 9]};
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kDigestBlocksAPart + warp;
  Found found;
  uint4 units[kBlocksAWarp][2];
#pragma unroll
  for (int i = 0; i < kBlocksAWarp; ++i) {
    const int64_t block = first + i * kWarps;
    if (block >= blocks) continue;
    units[i][0] = data[block * 64 + lane];
    units[i][1] = data[block * 64 + lane + 32];
  }
#pragma unroll
  for (int i = 0; i < kBlocksAWarp; ++i) {
    const int64_t block = first + i * kWarps;
    if (block >= blocks) break;  // the same for the whole warp
    Pair sum{0, 0};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4& unit = units[i][half];
      const uint64_t a = unit.x | static_cast<uint64_t>(unit.y) << 32, b = unit.z | static_cast<uint64_t>(unit.w) << 32;
      sum.first += mixed(a, keys[2 * half]) + b;
      sum.second += mixed(b, keys[2 * half + 1]) + a;
      add_unit<T>(found, unit, normal);
    }
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2) {
      sum.first += from_lane(sum.first, offset);
      sum.second += from_lane(sum.second, offset);
    }
    if (lane < 4) sums[block * 4 + lane] = sum;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    Found other;
    other.sum = from_lane(found.sum, offset);
    other.squares = from_lane(found.squares, offset);
    other.least = from_lane(found.least, offset);
    other.most = from_lane(found.most, offset);
    other.zero = from_lane(found.zero, offset);
    other.denormal = from_lane(found.denormal, offset);
    other.nan = from_lane(found.nan, offset);
    other.inf = from_lane(found.inf, offset);
    found.join(other);
  }
  if (blockIdx.x == 0) {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    for (size_t i = threadIdx.x; i < kDigestHead; i += kWarps * 32) result[layout.head_at + i] = bytes[i];
    for (size_t i = threadIdx.x; i < layout.tail_bytes; i += kWarps * 32)
      result[layout.tail_at + i] = bytes[layout.tail_begin + i];
  }
  __shared__ DigestPart of_warps[kWarps];
  if (lane == 0)
    of_warps[warp] = {found.sum,  found.squares,  found.least, found.most,
                      found.zero, found.denormal, found.nan,   found.inf};
  __syncthreads();
  if (threadIdx.x != 0) return;
  Found all;
  for (int i = 0; i < kWarps; ++i) {  // in order: the same digits every time
    const DigestPart& p = of_warps[i];
    Found one;
    one.sum = p.sum;
    one.squares = p.squares;
    one.least = p.least;
    one.most = p.most;
    one.zero = p.zero;
    one.denormal = p.denormal;
    one.nan = p.nan;
    one.inf = p.inf;
    all.join(one);
  }
  reinterpret_cast<DigestPart*>(result + layout.parts_at)[blockIdx.x] = {all.sum,  all.squares,  all.least, all.most,
                                                                         all.zero, all.denormal, all.nan,   all.inf};
}

constexpr int kFingerprintThreads = 256;

__global__ void __launch_bounds__(kFingerprintThreads) fingerprint_rows(WordRows words, unsigned long long* sum) {
  unsigned long long mine = 0;
  for (int64_t row = blockIdx.x; row < words.batch * words.rows; row += gridDim.x) {
    const uint16_t* from = words.data + row / words.rows * words.batch_stride + row % words.rows * words.row_stride;
    for (int64_t i = threadIdx.x; i < words.columns; i += kFingerprintThreads)
      mine += from[i] * (2 * static_cast<unsigned long long>(row * words.columns + i) + 0x9E3779B97F4A7C15u);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) mine += from_lane(mine, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}

}  // namespace

Outcome fingerprint(const WordRows& words, unsigned long long* sum, Stream stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  if (const Outcome cleared = checked(cudaMemsetAsync(sum, 0, sizeof(*sum), s), "fingerprint");
      cleared != Outcome::kDone)
    return cleared;
  fingerprint_rows<<<1056, kFingerprintThreads, 0, s>>>(words, sum);
  return launched("fingerprint");
}

Outcome digest(const View* x, float smallest_normal, void* result, Stream stream) {
  int64_t bytes = bytes_of(x->dtype);
  for (int axis = 0; axis < x->rank; ++axis) bytes *= x->shape[axis];
  const DigestLayout layout = digest_layout(static_cast<size_t>(bytes));
  if (layout.blocks == 0 || reinterpret_cast<uintptr_t>(x->data) % 16 != 0) return unsupported("a digest of so little");
  return for_float(x->dtype, "a digest of this dtype", [&]<typename T>(T) {
    digest_parts<T><<<layout.parts, kWarps * 32, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const uint4*>(x->data), layout, smallest_normal, static_cast<std::byte*>(result));
    return launched("digest");
  });
}

}  // namespace lockstep::cuda
