#include "models/qwen_image/transformer.h"

#include <cmath>

#include "base/error.h"

namespace lockstep::models {

using nn::Ctx;

namespace {

constexpr float kEps = 1e-6f;
constexpr int64_t kTimeFeatures = 256;

// 10000^(-i/128) as torch's vectorised exp gives it: correctly rounded but for two of the 128, which are one ulp up
// (AVX2 and AVX-512 builds alike).
float time_frequency(int64_t i) {
  const float exponent = -static_cast<float>(std::log(10000.0)) * static_cast<float>(i) / 128.0f;
  const float exact = static_cast<float>(std::exp(static_cast<double>(exponent)));
  return i == 12 || i == 106 ? std::nextafter(exact, 1.0f) : exact;
}

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

}  // namespace

QwenImageTransformer::QwenImageTransformer(const nn::Weights& w, const QwenImageConfig& config) : config_(config) {
  const int64_t d = config.width();
  img_in_ = nn::Linear(w, "img_in", config.in_channels, d);
  txt_norm_ = nn::RmsNorm(w, "txt_norm", config.text_width, kEps);
  txt_in_ = nn::Linear(w, "txt_in", config.text_width, d);
  time_1_ = nn::Linear(w, "time_text_embed.timestep_embedder.linear_1", kTimeFeatures, d);
  time_2_ = nn::Linear(w, "time_text_embed.timestep_embedder.linear_2", d, d);
  for (int i = 0; i < config.layers; ++i) blocks_.emplace_back(w.at("transformer_blocks", i), config);
  norm_out_ = nn::Linear(w, "norm_out.linear", d, 2 * d);
  proj_out_ = nn::Linear(w, "proj_out", d, config.output_width());
}

Tensor QwenImageTransformer::time_embedding(const std::vector<float>& timesteps, const Ctx& ctx) const {
  const Tensor features = (ctx / "time_text_embed.time_proj").tap(time_features(timesteps));  // [B, 256]
  const Ctx embedder = ctx / "time_text_embed.timestep_embedder";
  const Tensor hidden = time_1_.forward(ops::cast(ctx.backend(), features, ctx.dtype()), embedder / "linear_1");
  const Tensor temb =
      time_2_.forward(ops::unary(ctx.backend(), UnaryOp::kSilu, hidden), embedder / "linear_2");  // [B, D]
  return (ctx / "time_text_embed").tap(temb);
}

Tensor QwenImageTransformer::forward(const Input& input, const Ctx& ctx) const {
  Backend& backend = ctx.backend();
  if (static_cast<int64_t>(input.timesteps.size()) != input.latents.dim(0))
    fail(Code::kInternal, "transformer", "one timestep a row of latents",
         {.expected = std::to_string(input.latents.dim(0)), .got = std::to_string(input.timesteps.size())});
  Streams x;
  x.img = img_in_.forward(input.latents, ctx / "img_in");                                    // [B, N, D]
  x.txt = txt_in_.forward(txt_norm_.forward(input.text, ctx / "txt_norm"), ctx / "txt_in");  // [B, T, D]
  const Tensor temb = ops::unary(backend, UnaryOp::kSilu,
                                 time_embedding(input.timesteps, ctx));  // every user of temb activates it first
  const Tensor mask = input.text_mask ? joint_mask(*input.text_mask, x.img.dim(1)) : Tensor();
  for (size_t i = 0; i < blocks_.size(); ++i)
    x = blocks_[i].forward(x, temb, *input.rope, input.text_mask ? &mask : nullptr,
                           ctx.at("transformer_blocks", static_cast<int>(i)));
  const Tensor out_mod =
      norm_out_.forward(temb, ctx / "norm_out.linear");  // [B, 2D]: scale first here, unlike in the blocks
  const Tensor scale = out_mod.slice(1, 0, config_.width()),
               shift = out_mod.slice(1, config_.width(), 2 * config_.width());
  const Tensor y = (ctx / "norm_out").tap(ops::norm_modulate(backend, x.img, shift, scale, kEps));
  return proj_out_.forward(y, ctx / "proj_out");  // [B, N, patch * patch * out_channels]
}

}  // namespace lockstep::models
