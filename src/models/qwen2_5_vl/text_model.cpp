#include "models/qwen2_5_vl/text_model.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/interrupt.h"
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

Tensor TextLayer::self_attention(const Tensor& x, const Tensor& residual, const RotaryTable& rope, KeyValueCache* cache,
                                 int index, const Ctx& ctx) const {
  Backend& backend = ctx.backend();
  const int64_t batch = x.dim(0), tokens = x.dim(1);
  const Tensor q = q_.forward(x, ctx / "q_proj").reshape({batch, tokens, config_.heads, config_.head_width});
  const Tensor k = k_.forward(x, ctx / "k_proj").reshape({batch, tokens, config_.kv_heads, config_.head_width});
  Tensor v = v_.forward(x, ctx / "v_proj").reshape({batch, tokens, config_.kv_heads, config_.head_width});
  Tensor q_rotated = backend.allocate(q.dtype(), q.shape()), k_rotated = backend.allocate(k.dtype(), k.shape());
  const auto rotate = [&](const Tensor& from, Tensor& to) {
    ops::head_norm_rope(backend,
                        {.x = from, .out = to, .style = RopeStyle::kHalfSplit, .cos = &rope.cos, .sin = &rope.sin});
  };
  rotate(q, q_rotated);
  rotate(k, k_rotated);
  if (cache) {
    Tensor &keys = cache->keys[static_cast<size_t>(index)], &values = cache->values[static_cast<size_t>(index)];
    const int64_t end = cache->length + tokens;
    ops::copy_into(backend, k_rotated, keys.slice(1, cache->length, end));
    ops::copy_into(backend, v, values.slice(1, cache->length, end));
    k_rotated = keys.slice(1, 0, end);  // [1, seen + S, G, D]
    v = values.slice(1, 0, end);
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_width));
  const Tensor attended = ops::attention(backend, q_rotated, k_rotated, v, {.scale = scale, .causal = true});
  const Tensor flat = attended.reshape({batch, tokens, config_.heads * config_.head_width});
  if (!ctx.listening_to("o_proj") && !ctx.listening_to("0"))
    return ops::linear(backend, flat, o_.weight(), {.residual = &residual});
  return ops::binary(backend, BinaryOp::kAdd, residual, (ctx / "0").tap(o_.forward(flat, ctx / "o_proj")));
}

Tensor TextLayer::mlp(const Tensor& x, const Tensor& residual, const Ctx& ctx) const {
  Backend& backend = ctx.backend();
  const Tensor up = up_.forward(x, ctx / "up_proj");
  Tensor hidden;
  if (ctx.listening_to("gate_proj"))
    hidden = ops::binary(backend, BinaryOp::kSiluMultiply, gate_.forward(x, ctx / "gate_proj"), up);
  else
    hidden =
        ops::linear(backend, x, gate_.weight(), {.activation = Activation::kSilu, .multiply = &up});  // [B, S, hidden]
  if (!ctx.listening() && !ctx.listening_to("down_proj"))
    return ops::linear(backend, hidden, down_.weight(), {.residual = &residual});
  return ops::binary(backend, BinaryOp::kAdd, residual, ctx.tap(down_.forward(hidden, ctx / "down_proj")));
}

Tensor TextLayer::forward(const Tensor& x, const RotaryTable& rope, KeyValueCache* cache, int index,
                          const Ctx& ctx) const {
  const Tensor h =
      self_attention(input_norm_.forward(x, ctx / "input_layernorm"), x, rope, cache, index, ctx / "self_attn");
  return ctx.tap(mlp(post_norm_.forward(h, ctx / "post_attention_layernorm"), h, ctx / "mlp"));  // [B, S, D]
}

namespace {

// The official tables hold each angle twice, for both halves of a head: [1, S, D].
Tensor offered_half(Tensor half, const Ctx& ctx) {
  if (!ctx.listening()) return half;
  const int64_t tokens = half.dim(0), width = half.dim(1);
  Tensor both = Tensor::empty(DType::kF32, {1, tokens, 2 * width});
  float* out = both.mutable_data<float>();
  for (int64_t i = 0; i < tokens; ++i)
    for (int copy = 0; copy < 2; ++copy, out += width) std::copy_n(half.data<float>() + i * width, width, out);
  return ctx.tap(both).host().squeeze(0).slice(1, 0, width).contiguous();
}

}  // namespace

TextModel::TextModel(const nn::Weights& w, const TextConfig& config, Head head) : config_(config) {
  // transformers saves "model.layers..." or, newer, "model.language_model.layers..."; taps and messages use the first.
  const nn::Weights model =
      w.has("model.language_model.embed_tokens.weight") ? w / "model.language_model" : w / "model";
  for (const char* unneeded : {"visual.*", "model.visual.*", "lm_head.*", "encoder.visual.*"}) w.ignore(unneeded);
  embedding_ = (model / "embed_tokens").stored("weight", {config.vocabulary, config.width});
  for (int i = 0; i < config.layers; ++i) layers_.emplace_back(model.at("layers", i), config);
  norm_ = nn::RmsNorm(model, "norm", config.width, config.eps);
  if (head == Head::kNone) return;
  if (config.tied_head && !w.has("lm_head.weight"))
    head_.weight = embedding_;
  else
    head_ = w.linear("lm_head", config.width, config.vocabulary, false);
}

RotaryTable TextModel::rotary_table(const Input& input) const {
  const int64_t tokens = static_cast<int64_t>(input.ids.size()), half = config_.head_width / 2;
  // Which axis a frequency turns with. Text stands at the same place on all of them.
  std::vector<size_t> axis(static_cast<size_t>(half), 0);
  if (!input.positions.empty()) {
    size_t at = 0;
    for (size_t section = 0; section < config_.mrope_section.size(); ++section)
      for (int64_t i = 0; i < config_.mrope_section[section] && at < axis.size(); ++i) axis[at++] = section % 3;
    if (at != axis.size())
      fail(Code::kBadInput, "text_encoder", "mrope_section does not cover the head",
           {.expected = std::to_string(half) + " frequencies", .got = std::to_string(at)});
  }
  const int64_t first = input.cache ? input.cache->length : 0;
  RotaryTable table{Tensor::empty(DType::kF32, {tokens, half}), Tensor::empty(DType::kF32, {tokens, half})};
  float *c = table.cos.mutable_data<float>(), *s = table.sin.mutable_data<float>();
  for (int64_t token = 0; token < tokens; ++token)
    for (int64_t i = 0; i < half; ++i) {
      const int64_t position = input.positions.empty()
                                   ? first + token
                                   : input.positions[static_cast<size_t>(token)][axis[static_cast<size_t>(i)]];
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(config_.head_width);
      const float frequency = 1.0f / static_cast<float>(std::pow(config_.rope_theta, static_cast<double>(exponent)));
      const float angle = static_cast<float>(position) * frequency;
      *c++ = std::cos(angle);
      *s++ = std::sin(angle);
    }
  return table;
}

Tensor TextModel::embed(const Input& input, const Ctx& ctx) const {
  const int64_t tokens = static_cast<int64_t>(input.ids.size());
  (ctx / "embed_tokens").tap_input(Tensor::from<int64_t>({1, tokens}, input.ids));
  Tensor x = ops::gather(ctx.backend(), embedding_, ctx.backend().upload(Tensor::from<int64_t>({tokens}, input.ids)))
                 .reshape({1, tokens, config_.width});
  x = (ctx / "embed_tokens").tap(ops::cast(ctx.backend(), x, ctx.dtype()));
  if (!input.image_rows.defined()) return x;
  Tensor mixed = ctx.backend().allocate(x.dtype(), x.shape());  // x itself may be a listener's tensor
  int64_t taken = 0;
  for (int64_t begin = 0, end = 0; begin < tokens; begin = end) {  // runs of text and of image tokens
    const auto is_image = [&](int64_t i) { return input.ids[static_cast<size_t>(i)] == input.image_token; };
    for (end = begin; end < tokens && is_image(end) == is_image(begin);) ++end;
    Tensor source = x.slice(1, begin, end);
    if (is_image(begin)) {
      taken += end - begin;
      if (taken > input.image_rows.dim(0)) break;
      source = input.image_rows.slice(0, taken - (end - begin), taken).unsqueeze(0);
    }
    ops::copy_into(ctx.backend(), source, mixed.slice(1, begin, end));
  }
  if (taken != input.image_rows.dim(0))
    fail(Code::kBadInput, "text_encoder", "the prompt's image tokens do not match the pictures",
         {.expected = std::to_string(input.image_rows.dim(0)) + " tokens",
          .got = std::to_string(std::count(input.ids.begin(), input.ids.end(), input.image_token)),
          .hint = "a prompt without <|image_pad|>"});
  return mixed;
}

Tensor TextModel::forward(const Input& input, const Ctx& component) const {
  const Ctx ctx = component / "model";
  Tensor x = embed(input, ctx);
  const RotaryTable made = rotary_table(input);
  const RotaryTable rope{ctx.backend().upload(offered_half(made.cos, ctx / "rotary_emb.0")),
                         ctx.backend().upload(offered_half(made.sin, ctx / "rotary_emb.1"))};
  for (size_t i = 0; i < layers_.size(); ++i) {
    check_interrupt("generate");
    const int index = static_cast<int>(i);
    x = layers_[i].forward(x, rope, input.cache, index, ctx.at("layers", index));
    ctx.backend().flush();
  }
  if (input.cache) input.cache->length += x.dim(1);
  return norm_.forward(x, ctx / "norm");  // [1, S, D]
}

Tensor TextModel::logits(const Tensor& hidden, const Ctx& component) const {
  return (component / "lm_head").tap(ops::linear(component.backend(), hidden, head_));
}

KeyValueCache TextModel::make_cache(Backend& backend, int64_t capacity, DType dtype) const {
  KeyValueCache cache;
  for (int i = 0; i < config_.layers; ++i)
    for (std::vector<Tensor>* list : {&cache.keys, &cache.values})
      list->push_back(backend.allocate(dtype, {1, capacity, config_.kv_heads, config_.head_width}));
  return cache;
}

}  // namespace lockstep::models
