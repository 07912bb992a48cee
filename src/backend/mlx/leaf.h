// What the program and its MLX leaf say to each other. The leaf is a library of its own, built against the headers of
// the wheel `mlx` and opened at run time: it alone sees them, and this file has none of them. Nothing throws across it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep::mlx {

inline constexpr int kLeafVersion = 1;
inline constexpr int kMostAxes = 8;
inline constexpr const char* kLeafEntry = "lockstep_mlx_leaf";

enum class Outcome : int { kDone, kUnsupported, kNoMemory, kFailed };  // all but the first: Leaf::message says why

// The bytes of one storage: an array of MLX, or nothing yet. What is written into it is a node of MLX's graph, computed
// when somebody looks or flushes.
struct Slot;

struct View {
  Slot* slot;
  int dtype;  // lockstep::DType; f64 and the eight-bit floats can be moved, not computed with
  int rank;
  int64_t shape[kMostAxes], strides[kMostAxes];  // in elements
  int64_t offset;                                // in elements
};

struct Facts {
  char version[32];  // of MLX
  char device[128];  // "Apple M3 Max"
  int gpu;           // 0: MLX's CPU form
  uint64_t total_bytes;
};

struct Lent {                    // host memory that the leaf may read
  const void* data;              // page_bytes > 0: a multiple of it
  size_t bytes;                  // likewise
  size_t first;                  // bytes before the first that is meant
  size_t count;                  // elements that are meant
  int dtype;                     // lockstep::DType
  void (*release)(void* owner);  // called once, when the memory is no longer read
  void* owner;
};

// Null pointers stand for operands that were left out. The fields are those of the structs in backend/kernels.h.
struct LinearTask {
  const View *x, *weight, *bias, *scales, *biases, *multiply, *residual, *gate;
  View* out;
  int bits, group_size, activation;
};

struct AttentionTask {
  const View *q, *k, *v, *key_mask;
  View* out;
  float scale;
  int causal;
  const int64_t* segment_ends;
  size_t segments;
};

struct ConvTask {
  const View *x, *filter, *bias, *residual;  // filter [O, kh, kw, I]
  View* out;
  int stride, pad_top, pad_left, pad_bottom, pad_right;
};

struct Leaf {
  int version;
  const char* (*message)();  // of the last outcome on this thread that was not kDone
  Outcome (*open)(Facts* facts);

  Slot* (*make_slot)(size_t bytes);  // null: no memory
  void (*drop_slot)(Slot* slot);
  Outcome (*upload)(Slot* slot, const void* data, int dtype, size_t count);
  Outcome (*lend)(Slot* slot, const Lent* lent);  // without a copy where the allocator allows it
  // Evaluates and waits; the bytes stay until drop_bytes(keeper).
  Outcome (*bytes)(Slot* slot, const void** data, void** keeper);
  void (*drop_bytes)(void* keeper);
  Outcome (*evaluate)(Slot* slot);  // waits
  Outcome (*flush)();               // everything written since the last time, in one async_eval
  Outcome (*synchronize)();

  Outcome (*linear)(const LinearTask* task);
  Outcome (*attention)(const AttentionTask* task);
  Outcome (*conv2d)(const ConvTask* task);
  Outcome (*rms_norm)(const View* x, const View* weight, View* out, float eps);
  Outcome (*layer_norm)(const View* x, const View* weight, const View* bias, const View* scale, const View* shift,
                        View* out, float eps);
  Outcome (*head_norm_rope)(const View* x, const View* weight, const View* cos, const View* sin, View* out, float eps,
                            int style);
  Outcome (*channel_norm)(const View* x, const View* gamma, View* out, int silu);
  Outcome (*guidance)(const View* cond, const View* uncond, View* out, float scale, int rescale);
  Outcome (*add_gated)(const View* x, const View* gate, const View* y, View* out);
  Outcome (*unary)(int op, const View* x, View* out);
  Outcome (*binary)(int op, const View* a, const View* b, View* out);
  Outcome (*euler_step)(const View* x, const View* velocity, View* out, float dt);
  Outcome (*denormalize)(const View* x, const View* inverse_std, const View* mean, View* out);
  Outcome (*pixels)(const View* x, View* out);
  Outcome (*gather)(const View* table, const View* ids, View* out);
  Outcome (*copy)(const View* from, View* to);  // floats of any kind, or the same dtype
};

}  // namespace lockstep::mlx
