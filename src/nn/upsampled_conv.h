// Pixels repeated twice each way, then a 3x3 convolution: the upsampler of the VAE.
#pragma once
#include <array>

#include "nn/layers.h"

namespace lockstep::nn {

class UpsampledConv {
 public:
  UpsampledConv() = default;
  UpsampledConv(const Weights& weights, std::string_view name, int64_t inputs, int64_t outputs);
  Tensor forward(const Tensor& x, const Ctx& ctx) const;  // [B, H, W, C] → [B, 2H, 2W, O]; tapped without a frame axis
  bool defined() const { return phases_[0].weight.defined(); }

 private:
  // The doubled picture is never made. In bf16 a sum of weights is rounded where the official network rounds each of
  // them: one rounding among the dozens before it.
  std::array<ConvWeight, 4> phases_;
};

}  // namespace lockstep::nn
