#include "ops/attention.h"

#include "ops/check.h"

namespace lockstep::ops {

Tensor attention(Backend& backend, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  expect_rank(q, 4, "attention", "q is [B, S, H, D]");
  expect_rank(k, 4, "attention", "k is [B, T, G, D]");
  expect_shape(k, {q.dim(0), k.dim(1), k.dim(2), q.dim(3)}, "attention", "k");
  expect_shape(v, k.shape(), "attention", "v");
  if (k.dim(2) < 1 || q.dim(2) % k.dim(2) != 0)
    fail(Code::kBadInput, "attention", "query heads are not a multiple of key heads",
         {.expected = "a multiple of " + std::to_string(k.dim(2)), .got = std::to_string(q.dim(2))});
  if (options.key_mask) expect_shape(*options.key_mask, {k.dim(0), k.dim(1)}, "attention", "key mask");
  Tensor out = backend.allocate(q.dtype(), q.shape());
  backend.attention({.q = q,
                     .k = k,
                     .v = v,
                     .out = out,
                     .scale = options.scale,
                     .causal = options.causal,
                     .key_mask = options.key_mask,
                     .segment_ends = options.segment_ends});
  return out;
}

}  // namespace lockstep::ops
