// The small modules that models are made of. They own weights and names, no arithmetic.
#pragma once
#include "nn/ctx.h"
#include "nn/weights.h"
#include "ops/convolution.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace lockstep::nn {

class Linear {
 public:
  Linear() = default;
  Linear(const Weights& weights, std::string_view name, int64_t inputs, int64_t outputs, bool bias = true)
      : weight_(weights.linear(name, inputs, outputs, bias)) {}
  explicit Linear(LinearWeight weight) : weight_(std::move(weight)) {}
  Tensor forward(const Tensor& x, const Ctx& ctx) const {
    ctx.tap_input(x);
    return ctx.tap(ops::linear(ctx.backend(), x, weight_));
  }
  const LinearWeight& weight() const { return weight_; }

 private:
  LinearWeight weight_;
};

class RmsNorm {
 public:
  RmsNorm() = default;
  RmsNorm(const Weights& weights, std::string_view name, int64_t width, float eps)
      : weight_((weights / name).tensor("weight", {width})), eps_(eps) {}
  Tensor forward(const Tensor& x, const Ctx& ctx) const {
    ctx.tap_input(x);
    return ctx.tap(ops::rms_norm(ctx.backend(), x, weight_, eps_));
  }
  const Tensor& weight() const { return weight_; }
  float eps() const { return eps_; }

 private:
  Tensor weight_;
  float eps_ = 1e-6f;
};

// net.0.proj → GELU (tanh) → net.2: the feed-forward of diffusers.
class FeedForward {
 public:
  FeedForward() = default;
  FeedForward(const Weights& weights, int64_t width, int64_t hidden)
      : in_(weights, "net.0.proj", width, hidden), out_(weights, "net.2", hidden, width) {}
  Tensor forward(const Tensor& x, const Ctx& ctx) const;  // y alone
  // residual + gate * y in one kernel when nobody wants y itself.
  Tensor forward(const Tensor& x, const Tensor& residual, const Tensor& gate, const Ctx& ctx) const;

 private:
  Tensor hidden(const Tensor& x, const Ctx& ctx) const;

  Linear in_, out_;
};

// A 2-D convolution over [B, H, W, C]; how the checkpoint stores it is Weights' business.
class Conv {
 public:
  Conv() = default;
  explicit Conv(ConvWeight weight, int stride = 1, ops::Padding padding = {})
      : weight_(std::move(weight)), stride_(stride), padding_(padding) {}
  Tensor forward(const Tensor& x, const Ctx& ctx, const Tensor* residual = nullptr, bool frame_axis = true) const;
  bool defined() const { return weight_.weight.defined(); }

 private:
  ConvWeight weight_;
  int stride_ = 1;
  ops::Padding padding_;
};

}  // namespace lockstep::nn
