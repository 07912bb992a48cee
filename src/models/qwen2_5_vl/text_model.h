// The language model of Qwen2.5-VL as Qwen-Image uses it: token ids in, the last hidden states after the final norm
// out.
#pragma once
#include <span>
#include <vector>

#include "models/config_reader.h"
#include "nn/layers.h"

namespace lockstep::models {

struct TextConfig {
  int layers = 0;
  int64_t width = 0, heads = 0, kv_heads = 0, hidden = 0, vocabulary = 0, head_width = 0;
  float eps = 1e-6f;
  double rope_theta = 1e6;
};

TextConfig read_text_config(const fs::path& path);  // flat, or nested under text_config as newer transformers write it

class TextLayer {
 public:
  TextLayer(const nn::Weights& weights, const TextConfig& config);
  Tensor forward(const Tensor& x, const Tensor& cos, const Tensor& sin, const nn::Ctx& ctx) const;

 private:
  Tensor self_attention(const Tensor& x, const Tensor& cos, const Tensor& sin, const nn::Ctx& ctx) const;
  Tensor mlp(const Tensor& x, const nn::Ctx& ctx) const;

  TextConfig config_;
  nn::RmsNorm input_norm_, post_norm_;
  nn::Linear q_, k_, v_, o_, gate_, up_, down_;
};

class TextModel {
 public:
  TextModel(const nn::Weights& weights, const TextConfig& config);
  Tensor forward(std::span<const int64_t> ids, const nn::Ctx& ctx) const;  // [1, S, D]; ctx is the component

 private:
  TextConfig config_;
  Tensor embedding_;  // [V, D]
  std::vector<TextLayer> layers_;
  nn::RmsNorm norm_;
};

}  // namespace lockstep::models
