// What the program and its CUDA leaf say to each other. The leaf is a library of its own, built by nvcc and opened at
// run time: it alone sees CUDA's headers, and this file has none of them. Nothing throws across it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

inline constexpr int kLeafVersion = 4;
inline constexpr int kMostAxes = 8;
inline constexpr const char* kLeafEntry = "lockstep_cuda_leaf";

enum class Outcome : int { kDone, kUnsupported, kNoMemory, kFailed };  // all but the first: Leaf::message says why

using Stream = void*;
using Event = void*;
using Graph = void*;    // captured and instantiated
using Context = void*;  // a device with its libraries

struct View {
  void* data;
  int dtype;  // lockstep::DType
  int rank;
  int64_t shape[kMostAxes], strides[kMostAxes];  // in elements
};

struct DeviceFacts {
  char name[128];
  int major, minor, multiprocessors, threads_per_multiprocessor;
  int driver_version, leaf_version;  // CUDA's: 13000
  uint64_t total_bytes, free_bytes;
  int cublaslt_version, cudnn_version;  // 0: not there
};

// out[b, m, n] = activation(alpha * sum over k of x[b, m, k] * w[b, n, k] + bias[n] + residual[b, m, n])
struct MatmulTask {
  const void *x, *w, *bias, *residual;
  void* out;
  int operand_dtype, out_dtype;
  int64_t m, n, k, batch;
  int64_t x_row, w_row, out_row, residual_row;  // elements from row to row
  int64_t x_batch, w_batch, out_batch, residual_batch;
  int w_is_k_by_n;  // w[b, k, n] instead, w_row leading from k to k
  int gelu_tanh;
  float alpha;
  const float* x_scale;  // fp8: one a row of x
  const float* w_scale;  // fp8: one a row of w
};

struct AttentionTask {
  View q, k, v, out;  // [B, S, H, D], [B, T, G, D]
  float scale;
  int causal;
  const void* key_mask;  // bool [B, T], or null
  int64_t key_mask_batch;
  const int64_t* segment_ends;  // in device memory
  int segments;
};

struct SoftmaxTask {  // f32 scores [rows, keys] → weights of `dtype` [rows, keys]; a key that is not seen gets 0
  const float* scores;
  void* weights;
  int dtype;
  int64_t rows, keys;
  int64_t first_query;   // of row 0
  int64_t causal_reach;  // keys t <= query + reach; negative when not causal: -1
  int causal;
  const void* key_mask;  // bool [keys]
  const int64_t* segment_ends;
  int segments;
};

struct ConvTask {
  View x, out, residual;      // [B, H, W, C]; residual.data null without one
  const void *filter, *bias;  // [O, kh, kw, C], [O]; bias null without one
  int64_t kernel_height, kernel_width;
  int stride, pad_top, pad_left, pad_bottom, pad_right;
};

struct QuantisedTask {
  const uint32_t* words;  // [N, K * bits / 32]
  View scales, biases;    // [N, K / group]
  int bits, group_size;
  int64_t n, k;
};

// Into how many parts of K packed_product cuts its work; 0: it does not do such products.
inline int packed_parts_of(const QuantisedTask& task, int64_t rows) {
  constexpr int64_t kMostRows = 128, kStep = 128, kFewestSteps = 4;
  if (task.bits != 4 || rows > kMostRows || task.k % kStep != 0 || task.n > (int64_t{1} << 30)) return 0;
  const int64_t columns = rows > 64 ? 64 : 128, blocks = (task.n + columns - 1) / columns, steps = task.k / kStep;
  const int64_t room = rows > 16 ? 264 : 528;  // blocks that a large card runs at a time
  int64_t parts = room / blocks < steps / kFewestSteps ? room / blocks : steps / kFewestSteps;
  if (parts < 1) parts = 1;
  const int64_t steps_a_part = (steps + parts - 1) / parts;
  return static_cast<int>((steps + steps_a_part - 1) / steps_a_part);  // none without a step
}

// What digest() makes of a tensor's contiguous bytes, all in one buffer: the checksum's sums of each block of
// kDigestBlock bytes, moments of each part (kDigestBlocksAPart blocks), and bytes as they are, from both ends.
inline constexpr int kDigestBlock = 1024, kDigestBlocksAPart = 32;
inline constexpr size_t kDigestHead = 64;
struct DigestPart {
  double sum, squares;  // of the finite values, as are the next
  float least, most;
  uint32_t zero, denormal, nan, inf;
};
struct DigestLayout {
  int64_t blocks = 0, parts = 0;  // whole ones; sums of blocks come first: 8 words each
  size_t parts_at = 0, head_at = 0, tail_at = 0, total = 0;
  size_t tail_begin = 0, tail_bytes = 0;  // of the tensor's bytes: the last block and 64 bytes before it
};
inline DigestLayout digest_layout(size_t bytes) {
  DigestLayout made;
  const size_t blocks = bytes / kDigestBlock, before = bytes ? (bytes - 1) / kDigestBlock : 0;
  made.blocks = static_cast<int64_t>(blocks);
  made.parts = static_cast<int64_t>((blocks + kDigestBlocksAPart - 1) / kDigestBlocksAPart);
  made.parts_at = blocks * 64;
  made.head_at = made.parts_at + static_cast<size_t>(made.parts) * sizeof(DigestPart);
  made.tail_at = made.head_at + kDigestHead;
  made.tail_begin = before ? before * kDigestBlock - 64 : 0;
  made.tail_bytes = bytes - made.tail_begin;
  made.total = made.tail_at + made.tail_bytes;
  return made;
}

struct Leaf {
  int version;
  const char* (*message)();  // of this thread's last failure

  // `lt`, `dnn`: paths of the libraries, null where none was found.
  Outcome (*count)(int* devices, int* driver_version);
  Outcome (*open)(int device, const char* lt, const char* dnn, Context* context);
  void (*close)(Context context);
  Outcome (*facts)(Context context, DeviceFacts* facts);

  Outcome (*allocate)(Context context, size_t bytes, void** data);
  void (*release)(Context context, void* data);
  Outcome (*allocate_pinned)(Context context, size_t bytes, void** data);
  void (*release_pinned)(Context context, void* data);
  Stream (*stream)(Context context, int index);  // 0 and 1 compute, 2 copies in, 3 copies out
  Outcome (*copy)(Context context, void* to, const void* from, size_t bytes, Stream stream);  // any direction
  Outcome (*fill)(Context context, void* to, int value, size_t bytes, Stream stream);
  Outcome (*wait_stream)(Context context, Stream stream);
  // kind 1: with a time; 2: who waits for it sleeps
  Outcome (*create_event)(Context context, int kind, Event* event);
  void (*destroy_event)(Context context, Event event);
  Outcome (*record)(Context context, Event event, Stream stream);
  Outcome (*wait_event)(Context context, Stream stream, Event event);
  Outcome (*wait_event_on_host)(Context context, Event event);
  Outcome (*elapsed_ms)(Context context, Event begin, Event end, float* ms);
  Outcome (*begin_capture)(Context context, Stream stream);
  Outcome (*end_capture)(Context context, Stream stream, Graph* graph);
  Outcome (*launch)(Context context, Graph graph, Stream stream);
  void (*destroy_graph)(Context context, Graph graph);

  // `tune`: candidates may be timed, which runs the product several times.
  Outcome (*matmul)(Context context, const MatmulTask* task, int tune, Stream stream);
  Outcome (*attention_by_library)(Context context, const AttentionTask* task, Stream stream);
  Outcome (*attention)(const AttentionTask* task, Stream stream);
  Outcome (*softmax)(const SoftmaxTask* task, Stream stream);
  Outcome (*convolve_by_library)(Context context, const ConvTask* task, Stream stream);
  Outcome (*unfold)(const ConvTask* task, void* columns, int64_t first_row, int64_t rows, Stream stream);
  Outcome (*dequantise)(const QuantisedTask* task, View* out, Stream stream);  // [N, K]
  Outcome (*quantised_rows)(const QuantisedTask* task, const View* x, const void* bias, View* out, Stream stream);
  // `parts`: f32 [packed_parts_of, rows, N]
  Outcome (*packed_product)(const QuantisedTask* task, const View* x, const void* bias, int gelu_tanh, float* parts,
                            View* out, Stream stream);
  Outcome (*to_fp8_rows)(const View* x, void* out, float* scales, Stream stream);
  Outcome (*from_fp8_rows)(const void* rows, const float* scales, View* out, Stream stream);

  Outcome (*rms_norm)(const View* x, const View* weight, View* out, float eps, Stream stream);
  // `fp8`, `fp8_scales`: null, or where the result goes a second time, as to_fp8_rows would make it.
  Outcome (*layer_norm)(const View* x, View* out, float eps, const View* weight, const View* bias, const View* scale,
                        const View* shift, int64_t rows_per_batch, void* fp8, float* fp8_scales, Stream stream);
  // sum = x + gate * y, then its layer norm with scale and shift: two passes over the rows in one
  Outcome (*gated_norm)(const View* x, const View* gate, const View* y, View* sum, View* out, float eps,
                        const View* scale, const View* shift, int64_t rows_per_batch, void* fp8, float* fp8_scales,
                        Stream stream);
  Outcome (*channel_norm)(const View* x, const View* gamma, View* out, int silu, Stream stream);
  Outcome (*head_norm_rope)(const View* x, View* out, const View* weight, float eps, int style, const float* cos,
                            const float* sin, Stream stream);
  Outcome (*add_gated)(const View* x, const View* gate, const View* y, View* out, Stream stream);
  // y = activation(y); y *= multiply; out = residual + gate * y; rows_per_batch rows share a row of gate
  Outcome (*epilogue)(const View* y, View* out, int activation, const View* multiply, const View* residual,
                      const View* gate, int64_t rows_per_batch, Stream stream);
  Outcome (*unary)(int op, const View* x, View* out, Stream stream);
  Outcome (*binary)(int op, const View* a, const View* b, View* out, Stream stream);  // a, b broadcast by strides
  Outcome (*copy_view)(const View* from, View* to, Stream stream);
  Outcome (*gather)(const View* table, const int64_t* ids, View* out, Stream stream);
  Outcome (*guidance)(const View* cond, const View* uncond, View* out, float scale, int rescale, Stream stream);
  Outcome (*euler_step)(const View* x, const View* velocity, View* out, float dt, Stream stream);
  Outcome (*denormalize)(const View* x, const float* inverse_std, const float* mean, View* out, int64_t channels,
                         int64_t inner, Stream stream);
  Outcome (*pixels)(const View* x, View* out, Stream stream);
  // x: contiguous; result: of digest_layout(bytes of x).total bytes
  Outcome (*digest)(const View* x, float smallest_normal, void* result, Stream stream);
  Outcome (*philox_normals)(Context context, uint64_t seed, View* out, Stream stream);
};

}  // namespace lockstep::cuda
