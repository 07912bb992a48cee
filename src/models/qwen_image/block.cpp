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

// Six slices of [B, 6D]: shift, scale, gate for attention, then the same for the feed-forward.
std::pair<Modulation, Modulation> TransformerBlock::modulation(const nn::Linear& linear, std::string_view name,
                                                               const Tensor& activated_temb, const Ctx& ctx) const {
  const Ctx scope = ctx / name;
  const Tensor all = scope.tap(linear.forward(activated_temb, scope / "1"));
  const auto part = [&](int64_t i) { return all.slice(1, i * width_, (i + 1) * width_); };
  return {{part(0), part(1), part(2)}, {part(3), part(4), part(5)}};
}

Tensor TransformerBlock::modulated(const Tensor& x, const Modulation& m, std::string_view norm, const Ctx& ctx) const {
  if (ctx.listening_to(norm)) (ctx / norm).tap(ops::layer_norm(ctx.backend(), x, kNormEps));
  return ops::norm_modulate(ctx.backend(), x, m.shift, m.scale, kNormEps);
}

Streams TransformerBlock::forward(const Streams& x, const Tensor& activated_temb, const Rope& rope,
                                  const Tensor* key_mask, const Ctx& ctx) const {
  const auto [img1, img2] = modulation(img_mod_, "img_mod", activated_temb, ctx);
  const auto [txt1, txt2] = modulation(txt_mod_, "txt_mod", activated_temb, ctx);
  const Ctx attn = ctx / "attn";
  const Streams attended = attn_.forward(
      {modulated(x.img, img1, "img_norm1", ctx), modulated(x.txt, txt1, "txt_norm1", ctx)}, rope, key_mask, attn);
  Streams y = attn_.project(attended, x, img1, txt1, attn);  // [B, N, D], [B, T, D]
  y.img = img_mlp_.forward(modulated(y.img, img2, "img_norm2", ctx), y.img, img2.gate, ctx / "img_mlp");
  y.txt = txt_mlp_.forward(modulated(y.txt, txt2, "txt_norm2", ctx), y.txt, txt2.gate, ctx / "txt_mlp");
  return {(ctx / "1").tap(y.img), (ctx / "0").tap(y.txt)};  // the official block returns (text, image)
}

}  // namespace lockstep::models
