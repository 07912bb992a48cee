// Kernels over rows of f32, bf16 or f16, each on a range of rows. Small operands (weights, gates, modulation) come as
// f32 vectors, converted once by the caller. x and out have the same dtype.
#pragma once
#include "backend/cpu/rows.h"
#include "backend/kernels.h"

namespace lockstep::cpu {

struct RmsNormRows {
  DType dtype;
  Rows x, out;
  const float* weight;  // or null
  float eps;
};
void rms_norm_rows(const RmsNormRows& task, int64_t begin, int64_t end);

struct LayerNormRows {
  DType dtype;
  Rows x, out;
  int64_t rows_per_batch;                       // rows sharing one line of factor and shift
  const float *weight, *bias, *factor, *shift;  // [D], [D], [B, D] (1 + scale), [B, D]; or null
  float eps;
};
void layer_norm_rows(const LayerNormRows& task, int64_t begin, int64_t end);

struct HeadRows {  // one row is one head of one token
  DType dtype;
  Rows x, out;
  int64_t heads, tokens;
  const float* weight;  // or null: no norm
  float eps;
  RopeStyle style;
  const float *cos, *sin;  // [tokens, D/2]
};
void head_rows(const HeadRows& task, int64_t begin, int64_t end);

struct ChannelNormRows {
  DType dtype;
  Rows x, out;
  const float* gamma;
  bool silu;
};
void channel_norm_rows(const ChannelNormRows& task, int64_t begin, int64_t end);

struct GuidanceRows {
  DType dtype;
  Rows cond, uncond, out;
  float scale;
  bool rescale;
};
void guidance_rows(const GuidanceRows& task, int64_t begin, int64_t end);

struct AddGatedRows {
  DType dtype;
  Rows x, y, out;
  int64_t rows_per_batch;
  const float* gate;  // [B, D]
};
void add_gated_rows(const AddGatedRows& task, int64_t begin, int64_t end);

struct UnaryRows {
  UnaryOp op;
  DType dtype;
  Rows x, out;
};
void unary_rows(const UnaryRows& task, int64_t begin, int64_t end);

struct BinaryRows {
  BinaryOp op;
  DType dtype;
  Rows a, b, out;
  bool a_scalar, b_scalar;  // that operand has one element a row
};
void binary_rows(const BinaryRows& task, int64_t begin, int64_t end);

// What follows a matrix product: out = residual + gate * (activation(y + bias) * multiply), rounded once.
struct EpilogueRows {
  DType dtype;  // of multiply, residual and out
  const float* y;
  int64_t y_stride;   // floats from row to row of y
  const float* bias;  // or null
  Activation activation;
  const Rows *multiply, *residual;  // or null
  const float* gate;                // [B, N] or null
  int64_t rows_per_batch;
  Rows out;
};
// Rows [begin, end) and columns [first, last) of the output; y points at (begin, first).
void epilogue_block(const EpilogueRows& task, int64_t begin, int64_t end, int64_t first, int64_t last);

// `count` contiguous elements between any two of f32, bf16 and f16.
void convert_run(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count);

inline bool is_row_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

}  // namespace lockstep::cpu
