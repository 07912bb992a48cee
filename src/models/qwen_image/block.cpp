#include "models/qwen_image/block.h"

namespace lockstep::models {

using nn::Ctx;

namespace {
constexpr float kNormEps = 1e-6f;
}

TransformerBlock::TransformerBlock(const nn::Weights& w, const QwenImageConfig& config)
    : img_mod_(w, "img_mod.1", config.width(), 6 * config.width()),
      txt_mod_(w, "txt_mod.1", config.width(), 6 * config.width()),
      attn_(w / "attn", config),
      img_mlp_(w / "img_mlp", config.width(), 4 * config.width()),
      txt_mlp_(w / "txt_mlp", config.width(), 4 * config.width()),
      width_(config.width()) {}

Tensor RowModulation::norm_modulate(const Tensor& x, float eps, Backend& backend) const {
  if (!rest) return ops::norm_modulate(backend, x, first.shift, first.scale, eps);
  return ops::concat(backend, ops::norm_modulate(backend, x.slice(1, 0, first_rows), first.shift, first.scale, eps),
                     ops::norm_modulate(backend, x.slice(1, first_rows, x.dim(1)), rest->shift, rest->scale, eps), 1);
}

Tensor RowModulation::add_gated(const Tensor& x, const Tensor& y, Backend& backend) const {
  if (!rest) return ops::add_gated(backend, x, first.gate, y);
  const auto part = [&](int64_t begin, int64_t end, const Tensor& gate) {
    return ops::add_gated(backend, x.slice(1, begin, end), gate, y.slice(1, begin, end));
  };
  return ops::concat(backend, part(0, first_rows, first.gate), part(first_rows, x.dim(1), rest->gate), 1);
}

// Six slices of [B, 6D]: shift, scale, gate for attention, then the same for the feed-forward.
std::pair<RowModulation, RowModulation> TransformerBlock::modulation(const Tensor& all, const Tensor& x,
                                                                     int64_t targets) const {
  const int64_t batch = x.dim(0);
  const auto half = [&](int64_t at, int64_t row) {
    const Tensor rows = all.slice(0, row, row + batch);
    const auto part = [&](int64_t i) { return rows.slice(1, i * width_, (i + 1) * width_); };
    return Modulation{part(3 * at), part(3 * at + 1), part(3 * at + 2)};
  };
  RowModulation attention{half(0, 0), {}, targets}, mlp{half(1, 0), {}, targets};
  // Without condition pictures there are no rows for the second half.
  if (all.dim(0) > batch && targets < x.dim(1)) attention.rest = half(0, batch), mlp.rest = half(1, batch);
  return {attention, mlp};
}

void TransformerBlock::modulate_ahead(const Tensor& temb, Tensor img_mod, Tensor txt_mod, Backend& backend) const {
  ops::linear(backend, temb, img_mod_.weight(), {.out = &img_mod});
  ops::linear(backend, temb, txt_mod_.weight(), {.out = &txt_mod});
}

Tensor TransformerBlock::modulated(const Tensor& x, const RowModulation& m, std::string_view norm,
                                   const Ctx& ctx) const {
  if (ctx.listening_to(norm)) {
    const Ctx scope = ctx / norm;
    scope.tap_input(x);
    scope.tap(ops::layer_norm(ctx.backend(), x, kNormEps));
  }
  return m.norm_modulate(x, kNormEps, ctx.backend());
}

Tensor TransformerBlock::fed_forward(const nn::FeedForward& mlp, const Tensor& x, const RowModulation& m,
                                     std::string_view norm, std::string_view name, const Ctx& ctx) const {
  const Tensor y = modulated(x, m, norm, ctx);
  if (!m.rest) return mlp.forward(y, x, m.first.gate, ctx / name);
  return m.add_gated(x, mlp.forward(y, ctx / name), ctx.backend());
}

Streams TransformerBlock::forward(const Streams& x, const TimeRows& time, int64_t targets, const Rope& rope,
                                  const Tensor* key_mask, const Ctx& ctx) const {
  const int64_t batch = x.img.dim(0);
  const auto made = [&](const nn::Linear& linear, const Ctx& scope, const Tensor& temb) {
    return scope.tap(linear.forward((scope / "0").tap(temb), scope / "1"));
  };
  const auto [img1, img2] =
      modulation(time.img_mod.defined() ? time.img_mod : made(img_mod_, ctx / "img_mod", time.temb), x.img, targets);
  const auto [txt1, txt2] =
      modulation(time.txt_mod.defined() ? time.txt_mod.slice(0, 0, batch)
                                        : made(txt_mod_, ctx / "txt_mod", time.temb.slice(0, 0, batch)),
                 x.txt, 0);
  const Ctx attn = ctx / "attn";
  ctx.tap_input(x.img, "hidden_states");
  ctx.tap_input(x.txt, "encoder_hidden_states");
  const Streams modulated1{modulated(x.img, img1, "img_norm1", ctx), modulated(x.txt, txt1, "txt_norm1", ctx)};
  attn.tap_input(modulated1.img, "hidden_states");
  attn.tap_input(modulated1.txt, "encoder_hidden_states");
  const Streams attended = attn_.forward(modulated1, rope, key_mask, attn);
  Streams y = attn_.project(attended, x, img1, txt1, attn);  // [B, N, D], [B, T, D]
  y.img = fed_forward(img_mlp_, y.img, img2, "img_norm2", "img_mlp", ctx);
  y.txt = fed_forward(txt_mlp_, y.txt, txt2, "txt_norm2", "txt_mlp", ctx);
  return {(ctx / "1").tap(y.img), (ctx / "0").tap(y.txt)};  // the official block returns (text, image)
}

}  // namespace lockstep::models
