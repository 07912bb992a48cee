#include "models/qwen_image/transformer.h"

#include <cmath>

#include "base/error.h"
#include "base/interrupt.h"

namespace lockstep::models {

using nn::Ctx;

namespace {

constexpr float kEps = 1e-6f;
constexpr int64_t kTimeFeatures = 256;

// 10000^(-i/128) as torch gives it where MKL takes its portable path (MKL_CBWR=COMPATIBLE, and processors that are not
// Intel's): correctly rounded but for two of the 128, which are one ulp up.
float time_frequency(int64_t i) {
  const float exponent = -static_cast<float>(std::log(10000.0)) * static_cast<float>(i) / 128.0f;
  const float exact = static_cast<float>(std::exp(static_cast<double>(exponent)));
  return i == 12 || i == 106 ? std::nextafter(exact, 1.0f) : exact;
}

}  // namespace

// cos then sin of 1000 * t * 10000^(-i/128). Every operation in f32 and in the official order: one ulp in the frequency
// moves a feature by up to 5e-5, because the angle reaches 1000.
Tensor time_features(const std::vector<float>& timesteps) {
  constexpr int64_t kHalf = kTimeFeatures / 2;
  Tensor features = Tensor::empty(DType::kF32, {static_cast<int64_t>(timesteps.size()), kTimeFeatures});
  float* row = features.mutable_data<float>();
  for (const float t : timesteps) {
    for (int64_t i = 0; i < kHalf; ++i) {
      const float angle = 1000.0f * (t * time_frequency(i));
      row[i] = std::cos(angle);
      row[kHalf + i] = std::sin(angle);
    }
    row += kTimeFeatures;
  }
  return features;
}

// The table as the official code holds it, cos and sin of an angle side by side: [tokens, head_width / 2, 2].
RopeTable offered(const RopeTable& table, const Ctx& ctx) {
  if (!ctx.listening()) return table;
  const int64_t tokens = table.cos.dim(0), half = table.cos.dim(1);
  Tensor pairs = Tensor::empty(DType::kF32, {tokens, half, 2});
  float* out = pairs.mutable_data<float>();
  const Tensor cos_host = table.cos.host(), sin_host = table.sin.host();
  const float *cos = cos_host.data<float>(), *sin = sin_host.data<float>();
  for (int64_t i = 0; i < tokens * half; ++i) *out++ = cos[i], *out++ = sin[i];
  pairs = ctx.tap(pairs).host();  // a substitute was uploaded
  return {ctx.backend().upload(pairs.slice(2, 0, 1).squeeze(2).contiguous()),
          ctx.backend().upload(pairs.slice(2, 1, 2).squeeze(2).contiguous())};
}

// Joint keys are text, then image; image keys are always seen.
Tensor joint_mask(const Tensor& text_mask, int64_t image_tokens) {
  const int64_t batch = text_mask.dim(0), text = text_mask.dim(1);
  Tensor joint = Tensor::empty(DType::kBool, {batch, text + image_tokens});
  bool* out = joint.mutable_data<bool>();
  const bool* in = text_mask.data<bool>();
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < text + image_tokens; ++i) *out++ = i >= text || in[b * text + i];
  return joint;
}

QwenImageTransformer::QwenImageTransformer(const nn::Weights& w, const QwenImageConfig& config) : config_(config) {
  const int64_t d = config.width();
  img_in_ = nn::Linear(w, "img_in", config.in_channels, d);
  txt_norm_ = nn::RmsNorm(w, "txt_norm", config.text_width, kEps);
  txt_in_ = nn::Linear(w, "txt_in", config.text_width, d);
  time_1_ = nn::Linear(w, "time_text_embed.timestep_embedder.linear_1", kTimeFeatures, d);
  time_2_ = nn::Linear(w, "time_text_embed.timestep_embedder.linear_2", d, d);
  if (config.additional_t_cond) additional_ = (w / "time_text_embed.addition_t_embedding").tensor("weight", {2, d});
  for (int i = 0; i < config.layers; ++i) blocks_.emplace_back(w.at("transformer_blocks", i), config);
  norm_out_ = nn::Linear(w, "norm_out.linear", d, 2 * d);
  proj_out_ = nn::Linear(w, "proj_out", d, config.output_width());
}

Tensor QwenImageTransformer::features_of(std::vector<float> timesteps) const {
  return time_features(all_times(std::move(timesteps)));
}

// Rows of time 0 behind the others where condition pictures are told apart by it.
std::vector<float> QwenImageTransformer::all_times(std::vector<float> timesteps) const {
  if (config_.zero_cond_t) timesteps.resize(2 * timesteps.size(), 0.0f);
  return timesteps;
}

Tensor QwenImageTransformer::time_embedding(const Tensor& made, const Ctx& ctx) const {
  const Tensor features = (ctx / "time_text_embed.time_proj").tap(made);  // [B, 256]
  const Ctx embedder = ctx / "time_text_embed.timestep_embedder";
  const Tensor hidden = time_1_.forward(ops::cast(ctx.backend(), features, ctx.dtype()), embedder / "linear_1");
  const Tensor temb =
      time_2_.forward(ops::unary(ctx.backend(), UnaryOp::kSilu, hidden), embedder / "linear_2");  // [B, D]
  const Tensor whole = additional_.defined()  // the pipelines always say 0
                           ? ops::binary(ctx.backend(), BinaryOp::kAdd, temb, additional_.slice(0, 0, 1))
                           : temb;
  // Every user of it activates it first.
  return ops::unary(ctx.backend(), UnaryOp::kSilu, (ctx / "time_text_embed").tap(whole));
}

Tensor QwenImageTransformer::modulations(const Tensor& features, const Ctx& ctx) const {
  const int64_t six = 6 * config_.width();
  const Tensor temb = time_embedding(features, ctx);  // [R, D]
  Tensor all = ctx.backend().allocate(ctx.dtype(), {features.dim(0), modulation_width()});
  int64_t at = 0;
  for (const TransformerBlock& block : blocks_) {
    block.modulate_ahead(temb, all.slice(1, at, at + six), all.slice(1, at + six, at + 2 * six), ctx.backend());
    at += 2 * six;
  }
  Tensor last = all.slice(1, at, modulation_width());
  ops::linear(ctx.backend(), temb, norm_out_.weight(), {.out = &last});
  return all;
}

Tensor QwenImageTransformer::forward(const Input& input, const Ctx& ctx) const {
  Backend& backend = ctx.backend();
  const Tensor told = input.modulations ? *input.modulations
                      : input.features  ? *input.features
                                        : backend.upload(features_of(input.timesteps));
  const int64_t wanted = input.latents.dim(0) * (config_.zero_cond_t ? 2 : 1);
  if (told.dim(0) != wanted)
    fail(Code::kInternal, "transformer", "one timestep a row of latents",
         {.expected = std::to_string(wanted), .got = std::to_string(told.dim(0))});
  ctx.tap_input(input.latents, "hidden_states");
  ctx.tap_input(input.text, "encoder_hidden_states");
  if (!input.timesteps.empty() && ctx.listening()) {
    const std::vector<float> times = all_times(input.timesteps);
    (ctx / "time_text_embed.time_proj").tap_input(Tensor::from<float>({static_cast<int64_t>(times.size())}, times));
  }
  const Rope rope{offered(input.rope->img, ctx / "pos_embed.0"), offered(input.rope->txt, ctx / "pos_embed.1")};
  Streams x;
  x.img = img_in_.forward(input.latents, ctx / "img_in");                                    // [B, N, D]
  x.txt = txt_in_.forward(txt_norm_.forward(input.text, ctx / "txt_norm"), ctx / "txt_in");  // [B, T, D]
  // [B, D], or [2B, D] with zero_cond_t
  const Tensor temb = input.modulations ? Tensor() : time_embedding(told, ctx);
  const int64_t targets = input.target_tokens ? input.target_tokens : x.img.dim(1);
  Tensor mask;
  if (input.key_mask)
    mask = *input.key_mask;
  else if (input.text_mask)
    mask = backend.upload(joint_mask(*input.text_mask, x.img.dim(1)));
  const int64_t six = 6 * config_.width();
  for (int i = 0; i < config_.layers; ++i) {
    check_interrupt("generate");
    const auto ahead = [&](int64_t part) {  // [B, 6D]
      return input.modulations ? told.slice(1, (2 * i + part) * six, (2 * i + part + 1) * six) : Tensor();
    };
    x = blocks_[static_cast<size_t>(i)].forward(x, {temb, ahead(0), ahead(1)}, targets, rope,
                                                mask.defined() ? &mask : nullptr, ctx.at("transformer_blocks", i));
    backend.flush();
  }
  const int64_t batch = x.img.dim(0);
  const Tensor out_mod =  // [B, 2D]: scale first here
      input.modulations ? told.slice(0, 0, batch).slice(1, 2 * config_.layers * six, modulation_width())
                        : norm_out_.forward(temb.slice(0, 0, batch), ctx / "norm_out.linear");
  const Tensor scale = out_mod.slice(1, 0, config_.width()),
               shift = out_mod.slice(1, config_.width(), 2 * config_.width());
  (ctx / "norm_out").tap_input(x.img, "x");
  const Tensor y = (ctx / "norm_out").tap(ops::norm_modulate(backend, x.img, shift, scale, kEps));
  return proj_out_.forward(y, ctx / "proj_out");  // [B, N, patch * patch * out_channels]
}

}  // namespace lockstep::models
