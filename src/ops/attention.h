#pragma once
#include "backend/backend.h"

namespace lockstep::ops {

struct AttentionOptions {
  float scale = 1;
  bool causal = false;
  const Tensor* key_mask = nullptr;            // bool [B, T]
  std::span<const int64_t> segment_ends = {};  // windows by segment
};

Tensor attention(Backend& backend, const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options);  // [B, S, H, D]

}  // namespace lockstep::ops
