// The kernels of the leaf, each built from MLX's own. Where a chain of operations follows one of them it is done in f32
// and rounded once, whatever the tensors' dtype.
#pragma once
#include "backend/mlx/leaf.h"
#include "backend/mlx/leaf/slots.h"

namespace lockstep::mlx {

void linear(const LinearTask& task);
void attention(const AttentionTask& task);
void conv2d(const ConvTask& task);

void rms_norm(const View& x, const View* weight, View& out, float eps);
void layer_norm(const View& x, const View* weight, const View* bias, const View* scale, const View* shift, View& out,
                float eps);
void head_norm_rope(const View& x, const View* weight, const View* cos, const View* sin, View& out, float eps,
                    int style);
void channel_norm(const View& x, const View& gamma, View& out, bool silu);
void guidance(const View& cond, const View& uncond, View& out, float scale, bool rescale);

void add_gated(const View& x, const View& gate, const View& y, View& out);
void unary(int op, const View& x, View& out);
void binary(int op, const View& a, const View& b, View& out);

void euler_step(const View& x, const View& velocity, View& out, float dt);
void denormalize(const View& x, const View& inverse_std, const View& mean, View& out);
void pixels(const View& x, View& out);
void gather(const View& table, const View& ids, View& out);
void copy(const View& from, View& to);

// Of f32 arrays.
mx::array silu(const mx::array& x);
mx::array gelu_tanh(const mx::array& x);
mx::array gelu_erf(const mx::array& x);

// [B, D] for rows of [B, ..., D]: axes of one element in between.
mx::array for_rows(const mx::array& lines, const View& rows);

}  // namespace lockstep::mlx
