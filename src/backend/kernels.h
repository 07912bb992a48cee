// The arguments of the backend's kernels. Shapes are [outer, ..., inner]; "rows" means all axes but the last, taken
// together. Unless a field says otherwise a tensor is contiguous in its last axis and may have any strides before it.
// Outputs are allocated by the caller and never overlap inputs, except where "in place" is said.
#pragma once
#include <memory>
#include <span>

#include "tensor/tensor.h"

namespace lockstep {

enum class Activation { kNone, kGeluTanh, kGeluErf, kSilu };

// Weights of a linear layer, dense or MLX affine quantised: value = scales * q + biases for each group along K.
struct LinearWeight {
  Tensor weight;          // dense [N, K]; quantised: u32 [N, K * bits / 32]
  Tensor bias;            // [N] or undefined
  Tensor scales, biases;  // quantised only: [N, K / group_size]
  int bits = 0;           // 0: dense
  int group_size = 0;
  bool fp8 = false;  // products in e4m3: rows of the weight are rounded to it when it is prepared, rows of x each time
  std::shared_ptr<const void> prepared;  // a backend's own packed form

  int64_t outputs() const { return weight.dim(0); }
  int64_t inputs() const { return bits ? weight.dim(1) * 32 / bits : weight.dim(1); }
};

// y = x W^T + bias; y = activation(y); y *= multiply; out = residual + gate * y
struct LinearArgs {
  const Tensor& x;             // [..., K]
  const LinearWeight& weight;  // [N, K]
  Tensor& out;                 // [..., N]
  Activation activation = Activation::kNone;
  const Tensor* multiply = nullptr;  // [..., N]
  const Tensor* residual = nullptr;  // [..., N]; may be `out` itself (in place)
  const Tensor* gate = nullptr;      // [B, N], x being [B, M, K]; needs residual
};

struct AttentionArgs {
  const Tensor& q;  // [B, S, H, D]
  const Tensor& k;  // [B, T, G, D]; H is a multiple of G: head h reads group h / (H / G)
  const Tensor& v;  // [B, T, G, D]
  Tensor& out;      // [B, S, H, D]
  float scale = 1;
  bool causal = false;                         // query s sees keys t <= s + (T - S)
  const Tensor* key_mask = nullptr;            // bool [B, T]: false keys are not seen
  std::span<const int64_t> segment_ends = {};  // non-empty: token i attends only inside its own segment
};

struct RmsNormArgs {               // x / sqrt(mean(x^2) + eps), rounded to x's dtype, times weight
  const Tensor& x;                 // [..., D]
  const Tensor* weight = nullptr;  // [D]
  Tensor& out;
  float eps = 1e-6f;
};

struct LayerNormArgs {  // (x - mean) / sqrt(var + eps) [* weight + bias] [* (1 + scale) + shift]
  const Tensor& x;      // [B, N, D]
  Tensor& out;
  float eps = 1e-6f;
  const Tensor* weight = nullptr;  // [D]
  const Tensor* bias = nullptr;    // [D]
  const Tensor* scale = nullptr;   // [B, D]
  const Tensor* shift = nullptr;   // [B, D]
};

enum class RopeStyle { kNone, kInterleaved, kHalfSplit };  // pairs (2i, 2i+1), or (i, i + D/2)

struct HeadNormRopeArgs {          // per head: RMSNorm (when weight is given), then rotation
  const Tensor& x;                 // [B, S, H, D]
  Tensor& out;                     // [B, S, H, D]; may be x (in place)
  const Tensor* weight = nullptr;  // [D]
  float eps = 1e-6f;
  RopeStyle style = RopeStyle::kNone;
  const Tensor* cos = nullptr;  // f32 [S, D/2]
  const Tensor* sin = nullptr;
};

struct AddGatedArgs {  // x + gate * y
  const Tensor& x;     // [B, N, D]
  const Tensor& gate;  // [B, D]
  const Tensor& y;     // [B, N, D]
  Tensor& out;         // may be x (in place)
};

enum class UnaryOp { kSilu, kGeluTanh, kGeluErf, kNegate, kCos, kSin, kExp, kClampUnit };  // kClampUnit: to [-1, 1]

struct UnaryArgs {
  UnaryOp op;
  const Tensor& x;
  Tensor& out;  // same shape; may be x (in place)
};

enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kSiluMultiply };  // kSiluMultiply: silu(a) * b

struct BinaryArgs {
  BinaryOp op;
  const Tensor& a;
  const Tensor& b;  // NumPy broadcasting
  Tensor& out;
};

// Weights of a 2-D convolution; `weight` [O, I, kh, kw] as in the checkpoint.
struct ConvWeight {
  Tensor weight, bias;
  std::shared_ptr<const void> prepared;
};

struct Conv2dArgs {
  const Tensor& x;           // [B, H, W, C], contiguous
  const ConvWeight& weight;  // [O, C, kh, kw]
  Tensor& out;               // [B, Ho, Wo, O], contiguous
  int stride = 1;
  int pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;  // zeros
  const Tensor* residual = nullptr;                              // [B, Ho, Wo, O], added
};

struct ChannelNormArgs {  // x / max(|x|_2 over channels, 1e-12) * sqrt(C) * gamma, then SiLU if asked
  const Tensor& x;        // [..., C]
  const Tensor& gamma;    // [C]
  Tensor& out;
  bool silu = false;
};

struct GatherArgs {
  const Tensor& table;  // [V, D]
  const Tensor& ids;    // i64 [n], each in [0, V)
  Tensor& out;          // [n, D]
};

struct GuidanceArgs {  // comb = uncond + scale * (cond - uncond); out = comb * |cond| / |comb| over the last axis
  const Tensor& cond;  // [B, N, C]
  const Tensor& uncond;
  Tensor& out;
  float scale = 1;
  bool rescale = true;
};

// x + dt * v. In bf16 the step size and the product are rounded before the f32 sum, and the sum again, as torch does
// it: that order is part of the result.
struct EulerStepArgs {
  const Tensor& x;
  const Tensor& velocity;  // of x's shape
  Tensor& out;             // of x's shape, in the velocity's dtype
  float dt = 0;            // already rounded to the velocity's dtype
};

struct DenormalizeArgs {      // x / inverse_std + mean, each rounded to the dtype of x and out
  const Tensor& x;            // [B, C, ...], contiguous
  const Tensor& inverse_std;  // f32 [C], already rounded to that dtype
  const Tensor& mean;         // f32 [C], likewise
  Tensor& out;                // contiguous
};

struct PixelsArgs {  // [-1, 1] to 0 .. 255: x / 2 + 1/2 rounded to x's dtype, clamped, times 255, ties to even; NaN is
                     // 0
  const Tensor& x;   // contiguous
  Tensor& out;       // u8, of x's shape, contiguous
};

struct CopyArgs {  // any strides on both sides, any dtypes: the cast and the layout change
  const Tensor& from;
  Tensor& to;
};

}  // namespace lockstep
