#include "models/qwen2_5_vl/text_model.h"

#include <cmath>

#include "ops/attention.h"

namespace lockstep::models {

using nn::Ctx;

TextLayer::TextLayer(const nn::Weights& w, const TextConfig& c) : config_(c) {
  input_norm_ = nn::RmsNorm(w, "input_layernorm", c.width, c.eps);
  post_norm_ = nn::RmsNorm(w, "post_attention_layernorm", c.width, c.eps);
  q_ = nn::Linear(w, "self_attn.q_proj", c.width, c.heads * c.head_width);
  k_ = nn::Linear(w, "self_attn.k_proj", c.width, c.kv_heads * c.head_width);
  v_ = nn::Linear(w, "self_attn.v_proj", c.width, c.kv_heads * c.head_width);
  o_ = nn::Linear(w, "self_attn.o_proj", c.heads * c.head_width, c.width, false);
  gate_ = nn::Linear(w, "mlp.gate_proj", c.width, c.hidden, false);
  up_ = nn::Linear(w, "mlp.up_proj", c.width, c.hidden, false);
  down_ = nn::Linear(w, "mlp.down_proj", c.hidden, c.width, false);
}

Tensor TextLayer::self_attention(const Tensor& x, const Tensor& cos, const Tensor& sin, const Ctx& ctx) const {
  Backend& backend = ctx.backend();
  const int64_t batch = x.dim(0), tokens = x.dim(1);
  Tensor q = q_.forward(x, ctx / "q_proj").reshape({batch, tokens, config_.heads, config_.head_width});
  Tensor k = k_.forward(x, ctx / "k_proj").reshape({batch, tokens, config_.kv_heads, config_.head_width});
  const Tensor v = v_.forward(x, ctx / "v_proj").reshape({batch, tokens, config_.kv_heads, config_.head_width});
  Tensor q_rotated = Tensor::empty(q.dtype(), q.shape()), k_rotated = Tensor::empty(k.dtype(), k.shape());
  ops::head_norm_rope(backend, {.x = q, .out = q_rotated, .style = RopeStyle::kHalfSplit, .cos = &cos, .sin = &sin});
  ops::head_norm_rope(backend, {.x = k, .out = k_rotated, .style = RopeStyle::kHalfSplit, .cos = &cos, .sin = &sin});
  const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_width));
  const Tensor attended = ops::attention(backend, q_rotated, k_rotated, v, {.scale = scale, .causal = true});
  const Tensor out = o_.forward(attended.reshape({batch, tokens, config_.heads * config_.head_width}), ctx / "o_proj");
  return (ctx / "0").tap(out);
}

Tensor TextLayer::mlp(const Tensor& x, const Ctx& ctx) const {
  Backend& backend = ctx.backend();
  const Tensor up = up_.forward(x, ctx / "up_proj");
  Tensor hidden;
  if (ctx.listening_to("gate_proj"))
    hidden = ops::binary(backend, BinaryOp::kSiluMultiply, gate_.forward(x, ctx / "gate_proj"), up);
  else
    hidden =
        ops::linear(backend, x, gate_.weight(), {.activation = Activation::kSilu, .multiply = &up});  // [B, S, hidden]
  return ctx.tap(down_.forward(hidden, ctx / "down_proj"));
}

Tensor TextLayer::forward(const Tensor& x, const Tensor& cos, const Tensor& sin, const Ctx& ctx) const {
  Backend& backend = ctx.backend();
  const Tensor h =
      ops::binary(backend, BinaryOp::kAdd, x,
                  self_attention(input_norm_.forward(x, ctx / "input_layernorm"), cos, sin, ctx / "self_attn"));
  const Tensor y = ops::binary(backend, BinaryOp::kAdd, h,
                               mlp(post_norm_.forward(h, ctx / "post_attention_layernorm"), ctx / "mlp"));
  return ctx.tap(y);  // [B, S, D]
}

TextModel::TextModel(const nn::Weights& w, const TextConfig& config) : config_(config) {
  // transformers saves "model.layers..." or, newer, "model.language_model.layers..."; taps and messages use the first.
  const nn::Weights model =
      w.has("model.language_model.embed_tokens.weight") ? w / "model.language_model" : w / "model";
  for (const char* unneeded : {"visual.*", "model.visual.*", "lm_head.*", "encoder.visual.*"}) w.ignore(unneeded);
  embedding_ = (model / "embed_tokens").stored("weight", {config.vocabulary, config.width});
  for (int i = 0; i < config.layers; ++i) layers_.emplace_back(model.at("layers", i), config);
  norm_ = nn::RmsNorm(model, "norm", config.width, config.eps);
}

Tensor TextModel::forward(std::span<const int64_t> ids, const Ctx& component) const {
  const Ctx ctx = component / "model";
  const int64_t tokens = static_cast<int64_t>(ids.size()), half = config_.head_width / 2;
  Tensor cos = Tensor::empty(DType::kF32, {tokens, half}), sin = Tensor::empty(DType::kF32, {tokens, half});
  float *c = cos.mutable_data<float>(), *s = sin.mutable_data<float>();
  for (int64_t position = 0; position < tokens;
       ++position)  // pure text: all three axes of M-RoPE hold the same position
    for (int64_t i = 0; i < half; ++i) {
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(config_.head_width);
      const float frequency = 1.0f / static_cast<float>(std::pow(config_.rope_theta, static_cast<double>(exponent)));
      const float angle = static_cast<float>(position) * frequency;
      *c++ = std::cos(angle);
      *s++ = std::sin(angle);
    }
  Tensor x =
      ops::gather(ctx.backend(), embedding_, Tensor::from<int64_t>({tokens}, ids)).reshape({1, tokens, config_.width});
  x = (ctx / "embed_tokens").tap(ops::cast(ctx.backend(), x, ctx.dtype()));
  for (size_t i = 0; i < layers_.size(); ++i)
    x = layers_[i].forward(x, cos, sin, ctx.at("layers", static_cast<int>(i)));
  return norm_.forward(x, ctx / "norm");  // [1, S, D]
}

}  // namespace lockstep::models
