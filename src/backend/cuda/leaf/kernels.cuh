// The functions behind the leaf's table that kernels serve; their contracts stand in leaf.h.
#pragma once
#include "backend/cuda/leaf.h"

namespace lockstep::cuda {

Outcome attention(const AttentionTask* task, Stream stream);
Outcome softmax(const SoftmaxTask* task, Stream stream);
Outcome unfold(const ConvTask* task, void* columns, int64_t first_row, int64_t rows, Stream stream);
Outcome dequantise(const QuantisedTask* task, View* out, Stream stream);
Outcome quantised_rows(const QuantisedTask* task, const View* x, const void* bias, View* out, Stream stream);
Outcome packed_product(const QuantisedTask* task, const View* x, const void* bias, int gelu_tanh, float* parts,
                       View* out, Stream stream);
Outcome to_fp8_rows(const View* x, void* out, float* scales, Stream stream);
Outcome from_fp8_rows(const void* rows, const float* scales, View* out, Stream stream);
Outcome rms_norm(const View* x, const View* weight, View* out, float eps, Stream stream);
Outcome layer_norm(const View* x, View* out, float eps, const View* weight, const View* bias, const View* scale,
                   const View* shift, int64_t rows_per_batch, void* fp8, float* fp8_scales, Stream stream);
Outcome gated_norm(const View* x, const View* gate, const View* y, View* sum, View* out, float eps, const View* scale,
                   const View* shift, int64_t rows_per_batch, void* fp8, float* fp8_scales, Stream stream);
Outcome channel_norm(const View* x, const View* gamma, View* out, int silu, Stream stream);
Outcome head_norm_rope(const View* x, View* out, const View* weight, float eps, int style, const float* cos,
                       const float* sin, Stream stream);
Outcome add_gated(const View* x, const View* gate, const View* y, View* out, Stream stream);
Outcome epilogue(const View* y, View* out, int activation, const View* multiply, const View* residual, const View* gate,
                 int64_t rows_per_batch, Stream stream);
Outcome unary(int op, const View* x, View* out, Stream stream);
Outcome binary(int op, const View* a, const View* b, View* out, Stream stream);
Outcome copy_view(const View* from, View* to, Stream stream);
Outcome gather(const View* table, const int64_t* ids, View* out, Stream stream);
Outcome guidance(const View* cond, const View* uncond, View* out, float scale, int rescale, Stream stream);
Outcome euler_step(const View* x, const View* velocity, View* out, float dt, Stream stream);
Outcome denormalize(const View* x, const float* inverse_std, const float* mean, View* out, int64_t channels,
                    int64_t inner, Stream stream);
Outcome pixels(const View* x, View* out, Stream stream);
// A sum over all bits of rows of 16-bit words, each with its place; to device memory. Equal rows have equal sums.
struct WordRows {
  const uint16_t* data;
  int64_t batch, rows, columns;      // columns: words
  int64_t batch_stride, row_stride;  // words
};
Outcome fingerprint(const WordRows& words, unsigned long long* sum, Stream stream);
Outcome digest(const View* x, float smallest_normal, void* result, Stream stream);
Outcome philox_normals(Context context, uint64_t seed, View* out, Stream stream);

// Libraries, opened at run time.
Outcome matmul(Context context, const MatmulTask* task, int tune, Stream stream);
Outcome attention_by_library(Context context, const AttentionTask* task, Stream stream);
Outcome convolve_by_library(Context context, const ConvTask* task, Stream stream);

}  // namespace lockstep::cuda
