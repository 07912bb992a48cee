#include "models/qwen2_5_vl/vision_tower.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/interrupt.h"
#include "ops/attention.h"

namespace lockstep::models {

using nn::Ctx;

namespace {
constexpr float kVisionEps = 1e-6f;
}

VisionBlock::VisionBlock(const nn::Weights& w, const VisionConfig& c) : heads_(c.heads), head_width_(c.head_width()) {
  norm1_ = nn::RmsNorm(w, "norm1", c.width, kVisionEps);
  norm2_ = nn::RmsNorm(w, "norm2", c.width, kVisionEps);
  qkv_ = nn::Linear(w, "attn.qkv", c.width, 3 * c.width);
  proj_ = nn::Linear(w, "attn.proj", c.width, c.width);
  gate_ = nn::Linear(w, "mlp.gate_proj", c.width, c.hidden);
  up_ = nn::Linear(w, "mlp.up_proj", c.width, c.hidden);
  down_ = nn::Linear(w, "mlp.down_proj", c.hidden, c.width);
}

Tensor VisionBlock::attention(const Tensor& x, const RotaryTable& rope, std::span<const int64_t> segment_ends,
                              const Ctx& ctx) const {
  Backend& backend = ctx.backend();
  const int64_t tokens = x.dim(0);
  const Tensor qkv = qkv_.forward(x, ctx / "qkv").reshape({1, tokens, 3, heads_, head_width_});
  const auto rotated = [&](int64_t part) {
    Tensor out = backend.allocate(x.dtype(), {1, tokens, heads_, head_width_});
    const Tensor heads = qkv.select(2, part);  // [1, n, H, D]
    ops::head_norm_rope(backend,
                        {.x = heads, .out = out, .style = RopeStyle::kHalfSplit, .cos = &rope.cos, .sin = &rope.sin});
    return out;
  };
  const Tensor q = rotated(0), k = rotated(1);
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_width_));
  const Tensor attended =
      ops::attention(backend, q, k, qkv.select(2, 2), {.scale = scale, .segment_ends = segment_ends});
  return ctx.tap(proj_.forward(attended.reshape({tokens, heads_ * head_width_}), ctx / "proj"));
}

Tensor VisionBlock::mlp(const Tensor& x, const Ctx& ctx) const {
  Backend& backend = ctx.backend();
  const Tensor up = up_.forward(x, ctx / "up_proj");
  Tensor hidden;
  if (ctx.listening_to("gate_proj"))
    hidden = ops::binary(backend, BinaryOp::kSiluMultiply, gate_.forward(x, ctx / "gate_proj"), up);
  else
    hidden = ops::linear(backend, x, gate_.weight(), {.activation = Activation::kSilu, .multiply = &up});
  return ctx.tap(down_.forward(hidden, ctx / "down_proj"));
}

Tensor VisionBlock::forward(const Tensor& x, const RotaryTable& rope, std::span<const int64_t> segment_ends,
                            const Ctx& ctx) const {
  Backend& backend = ctx.backend();
  const Tensor h = ops::binary(backend, BinaryOp::kAdd, x,
                               attention(norm1_.forward(x, ctx / "norm1"), rope, segment_ends, ctx / "attn"));
  return ctx.tap(ops::binary(backend, BinaryOp::kAdd, h, mlp(norm2_.forward(h, ctx / "norm2"), ctx / "mlp")));
}

VisionTower::VisionTower(const nn::Weights& w, const VisionConfig& c) : config_(c) {
  const nn::Weights visual = w.has("model.visual.merger.ln_q.weight") ? w / "model.visual" : w / "visual";
  for (const char* unneeded : {"model.layers.*", "model.embed_tokens.*", "model.norm.*", "model.language_model.*",
                               "lm_head.*", "encoder.layers.*", "encoder.embed_tokens.*", "encoder.norm.*"})
    w.ignore(unneeded);
  patch_embed_ = nn::Linear((visual / "patch_embed").convolution_of_patches("proj", c.patch_values(), c.width));
  for (int i = 0; i < c.layers; ++i) blocks_.emplace_back(visual.at("blocks", i), c);
  merger_norm_ = nn::RmsNorm(visual / "merger", "ln_q", c.width, kVisionEps);
  const int64_t merged = c.width * c.merged_patches();
  merger_in_ = nn::Linear(visual, "merger.mlp.0", merged, merged);
  merger_out_ = nn::Linear(visual, "merger.mlp.2", merged, c.output_width);
}

Tensor VisionTower::forward(const Tensor& patches, std::span<const PatchGrid> grids, const Ctx& component) const {
  const Ctx ctx = component / "visual";
  Backend& backend = ctx.backend();
  const WindowPlan plan = plan_windows(config_, grids);
  const int64_t groups = static_cast<int64_t>(plan.order.size()), merged = config_.merged_patches();
  if (patches.rank() != 2 || patches.dim(0) != groups * merged)
    fail(Code::kInternal, "vision", "patches do not fit the grids",
         {.expected = std::to_string(groups * merged), .got = to_string(patches.shape())});
  const RotaryTable rope{backend.upload(plan.rope.cos), backend.upload(plan.rope.sin)};
  const Ctx embed = ctx / "patch_embed";
  Tensor x =
      ops::linear(backend, ops::cast(backend, backend.upload(patches), ctx.dtype()), patch_embed_.weight());  // [n, D]
  x = (embed / "proj").tap(x.reshape({groups * merged, config_.width, 1, 1, 1})).reshape(x.shape());
  x = embed.tap(x);
  // A group of merged patches is one row while it is moved.
  x = ops::gather(backend, x.reshape({groups, merged * config_.width}),
                  backend.upload(Tensor::from<int64_t>({groups}, plan.order)))
          .reshape({groups * merged, config_.width});
  for (size_t i = 0; i < blocks_.size(); ++i) {
    check_interrupt("generate");
    const bool whole = std::find(config_.full_attention.begin(), config_.full_attention.end(),
                                 static_cast<int64_t>(i)) != config_.full_attention.end();
    x = blocks_[i].forward(x, rope, whole ? plan.picture_ends : plan.window_ends,
                           ctx.at("blocks", static_cast<int>(i)));
    backend.flush();
  }
  const Ctx merger = ctx / "merger";
  const Tensor normed = merger_norm_.forward(x, merger / "ln_q").reshape({groups, merged * config_.width});
  Tensor hidden;
  if (merger.listening_to("mlp.0"))
    hidden = ops::unary(backend, UnaryOp::kGeluErf, merger_in_.forward(normed, merger / "mlp.0"));
  else
    hidden = ops::linear(backend, normed, merger_in_.weight(), {.activation = Activation::kGeluErf});
  hidden = (merger / "mlp.1").tap(hidden);
  const Ctx mlp = merger / "mlp";
  const Tensor rows = merger.tap(mlp.tap(merger_out_.forward(hidden, merger / "mlp.2")));  // window order
  return (ctx / "pooler_output")
      .tap(ops::gather(backend, rows,
                       backend.upload(Tensor::from<int64_t>({groups}, plan.restored))));  // [n / merge^2, output]
}

}  // namespace lockstep::models
