#include <cmath>

#include "models/qwen_image/block.h"
#include "ops/attention.h"

namespace lockstep::models {

using nn::Ctx;

JointAttention::JointAttention(const nn::Weights& w, const QwenImageConfig& config)
    : heads_(config.heads), head_width_(config.head_width) {
  const int64_t d = config.width();
  to_q_ = nn::Linear(w, "to_q", d, d);
  to_k_ = nn::Linear(w, "to_k", d, d);
  to_v_ = nn::Linear(w, "to_v", d, d);
  add_q_ = nn::Linear(w, "add_q_proj", d, d);
  add_k_ = nn::Linear(w, "add_k_proj", d, d);
  add_v_ = nn::Linear(w, "add_v_proj", d, d);
  to_out_ = nn::Linear(w, "to_out.0", d, d);
  to_add_out_ = nn::Linear(w, "to_add_out", d, d);
  constexpr float kEps = 1e-6f;
  norm_q_ = nn::RmsNorm(w, "norm_q", head_width_, kEps);
  norm_k_ = nn::RmsNorm(w, "norm_k", head_width_, kEps);
  norm_added_q_ = nn::RmsNorm(w, "norm_added_q", head_width_, kEps);
  norm_added_k_ = nn::RmsNorm(w, "norm_added_k", head_width_, kEps);
}

// RMSNorm and rotation of one stream's heads, written into its rows of the joint tensor.
void JointAttention::normed_rotated(const Tensor& x, const nn::RmsNorm& norm, const RopeTable& rope,
                                    std::string_view name, Tensor out, const Ctx& ctx) const {
  const Tensor heads = x.reshape({x.dim(0), x.dim(1), heads_, head_width_});  // [B, S, H, D]
  const Tensor* weight = &norm.weight();
  Tensor normed = heads;
  if (ctx.listening_to(name)) {
    normed = norm.forward(heads, ctx / name);
    weight = nullptr;  // normed already
  }
  ops::head_norm_rope(ctx.backend(), {.x = normed,
                                      .out = out,
                                      .weight = weight,
                                      .eps = norm.eps(),
                                      .style = RopeStyle::kInterleaved,
                                      .cos = &rope.cos,
                                      .sin = &rope.sin});
}

// Queries or keys of both streams as one tensor: text rows first, then image rows.
Tensor JointAttention::heads(const Streams& x, const Rope& rope, bool queries, const Ctx& ctx) const {
  const int64_t text = x.txt.dim(1), all = text + x.img.dim(1);
  Tensor joint = ctx.backend().allocate(x.img.dtype(), {x.img.dim(0), all, heads_, head_width_});
  const Tensor img = queries ? to_q_.forward(x.img, ctx / "to_q") : to_k_.forward(x.img, ctx / "to_k");
  const Tensor txt = queries ? add_q_.forward(x.txt, ctx / "add_q_proj") : add_k_.forward(x.txt, ctx / "add_k_proj");
  normed_rotated(img, queries ? norm_q_ : norm_k_, rope.img, queries ? "norm_q" : "norm_k", joint.slice(1, text, all),
                 ctx);
  normed_rotated(txt, queries ? norm_added_q_ : norm_added_k_, rope.txt, queries ? "norm_added_q" : "norm_added_k",
                 joint.slice(1, 0, text), ctx);
  return joint;
}

// Values of both streams, each projected into its rows of one tensor: [B, T + N, D].
Tensor JointAttention::values(const Streams& x, const Ctx& ctx) const {
  const int64_t text = x.txt.dim(1), all = text + x.img.dim(1);
  Tensor joint = ctx.backend().allocate(x.img.dtype(), {x.img.dim(0), all, heads_ * head_width_});
  const auto project = [&](const nn::Linear& linear, const Tensor& from, std::string_view name, Tensor rows) {
    if (ctx.listening_to(name))
      ops::copy_into(ctx.backend(), linear.forward(from, ctx / name), rows);
    else
      ops::linear(ctx.backend(), from, linear.weight(), {.out = &rows});
  };
  project(to_v_, x.img, "to_v", joint.slice(1, text, all));
  project(add_v_, x.txt, "add_v_proj", joint.slice(1, 0, text));
  return joint;
}

Streams JointAttention::forward(const Streams& x, const Rope& rope, const Tensor* key_mask, const Ctx& ctx) const {
  const int64_t text = x.txt.dim(1), all = text + x.img.dim(1), batch = x.img.dim(0);
  const Tensor q = heads(x, rope, true, ctx), k = heads(x, rope, false, ctx);  // [B, T + N, H, D]
  const Tensor v = values(x, ctx).reshape({batch, all, heads_, head_width_});
  const Tensor joint =
      ops::attention(ctx.backend(), q, k, v,
                     {.scale = 1.0f / std::sqrt(static_cast<float>(head_width_)), .key_mask = key_mask})
          .reshape({batch, all, heads_ * head_width_});
  return {ops::contiguous(ctx.backend(), joint.slice(1, text, all)),
          ops::contiguous(ctx.backend(), joint.slice(1, 0, text))};  // [B, N, D], [B, T, D]
}

Tensor JointAttention::output(const nn::Linear& linear, std::string_view name, std::string_view tuple_name,
                              const Tensor& x, const Tensor& residual, const RowModulation& m, const Ctx& ctx) const {
  if (!m.rest && !ctx.listening_to(name) && !ctx.listening_to(tuple_name))
    return ops::linear(ctx.backend(), x, linear.weight(), {.residual = &residual, .gate = &m.first.gate});
  return m.add_gated(residual, (ctx / tuple_name).tap(linear.forward(x, ctx / name)), ctx.backend());
}

Streams JointAttention::project(const Streams& attended, const Streams& residual, const RowModulation& img,
                                const RowModulation& txt, const Ctx& ctx) const {
  return {output(to_out_, "to_out.0", "0", attended.img, residual.img, img, ctx),
          output(to_add_out_, "to_add_out", "1", attended.txt, residual.txt, txt, ctx)};
}

}  // namespace lockstep::models
