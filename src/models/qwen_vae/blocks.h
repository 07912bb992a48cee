// What encoder and decoder are made of, for a single image: of every causal 3-D convolution only the newest temporal
// tap meets data, so the network is 2-D. Tensors are [B, H, W, C].
#pragma once
#include <vector>

#include "nn/layers.h"

namespace lockstep::models {

class ChannelNorm {
 public:
  ChannelNorm() = default;
  ChannelNorm(const nn::Weights& weights, std::string_view name, int64_t channels)
      : gamma_((weights / name).flat("gamma", channels)) {}
  Tensor forward(const Tensor& x, bool silu, const nn::Ctx& ctx, bool frame_axis = true) const;

 private:
  Tensor gamma_;
};

nn::Conv causal_conv(const nn::Weights& weights, std::string_view name, int64_t inputs, int64_t outputs, int kernel);

class ResidualBlock {
 public:
  ResidualBlock(const nn::Weights& weights, int64_t inputs, int64_t outputs);
  Tensor forward(const Tensor& x, const nn::Ctx& ctx) const;

 private:
  ChannelNorm norm1_, norm2_;
  nn::Conv conv1_, conv2_, shortcut_;
};

class ImageAttention {
 public:
  ImageAttention(const nn::Weights& weights, int64_t channels);
  Tensor forward(const Tensor& x, const nn::Ctx& ctx) const;

 private:
  ChannelNorm norm_;
  nn::Conv to_qkv_, proj_;
  int64_t channels_;
};

class MidBlock {
 public:
  MidBlock(const nn::Weights& weights, int64_t channels);
  Tensor forward(const Tensor& x, const nn::Ctx& ctx) const;

 private:
  ResidualBlock first_;
  ImageAttention attention_;
  ResidualBlock second_;
};

}  // namespace lockstep::models
