#include "pipeline/guidance.h"

#include <algorithm>

#include "ops/elementwise.h"

namespace lockstep {

bool runs_as_batch(GuidanceRun run, int64_t image_tokens, int64_t cond_tokens, int64_t uncond_tokens) {
  if (run != GuidanceRun::kAuto) return run == GuidanceRun::kBatch;
  constexpr int64_t kFewTokens =
      320;  // ./dev bench guidance: 1.07x to 1.38x from 16 to 256 image tokens, not measured beyond
  return image_tokens + std::max(cond_tokens, uncond_tokens) <= kFewTokens;
}

PaddedText pad_together(Backend& backend, const Tensor& cond, const Tensor& uncond) {
  const int64_t tokens = std::max(cond.dim(1), uncond.dim(1));
  const int64_t rows = cond.dim(0);
  PaddedText both{backend.upload(Tensor::zeros(cond.dtype(), {2 * rows, tokens, cond.dim(2)})),
                  Tensor::zeros(DType::kBool, {2 * rows, tokens})};
  bool* mask = both.mask.mutable_data<bool>();
  for (const auto& [first, text] : {std::pair<int64_t, const Tensor&>{0, cond}, {rows, uncond}}) {
    ops::copy_into(backend, text, both.text.slice(0, first, first + rows).slice(1, 0, text.dim(1)));
    for (int64_t row = first; row < first + rows; ++row) std::fill_n(mask + row * tokens, text.dim(1), true);
  }
  return both;
}

}  // namespace lockstep
