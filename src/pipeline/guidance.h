// True guidance needs a conditional and an unconditional velocity: two passes of the transformer, or one batch of two
// rows.
#pragma once
#include "backend/backend.h"

namespace lockstep {

enum class GuidanceRun { kAuto, kPasses, kBatch };

// Whichever is faster. A pass of few tokens is bound by what each kernel call costs, and a batch halves the calls; with
// more tokens the shorter prompt's padding costs more than that.
bool runs_as_batch(GuidanceRun run, int64_t image_tokens, int64_t cond_tokens, int64_t uncond_tokens);

struct PaddedText {
  Tensor text;  // [2B, T, D]: conditional, then unconditional, the shorter ones filled with zeros
  Tensor mask;  // bool [2B, T], a host tensor: false where filled
};
PaddedText pad_together(Backend& backend, const Tensor& cond, const Tensor& uncond);  // [B, T1, D], [B, T2, D]

}  // namespace lockstep
