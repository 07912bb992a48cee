// A backend of a device as the kernel tests use one: host tensors in and out, with their strides.
#pragma once
#include <map>
#include <memory>

#include "backend/backend.h"
#include "base/error.h"
#include "tensor/convert.h"

namespace lockstep::testing {

class Staged final : public Backend {
 public:
  explicit Staged(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string description() const override { return inner_->description(); }
  bool prepare(LinearWeight& weight, DType activations) override { return inner_->prepare(weight, activations); }
  bool prepare(ConvWeight& weight, DType activations) override { return inner_->prepare(weight, activations); }

  void linear(const LinearArgs& a) override {
    Tensor out = begin(a.out);
    LinearWeight weight = a.weight;
    if (!weight.prepared)
      for (Tensor* part : {&weight.weight, &weight.bias, &weight.scales, &weight.biases}) *part = in(*part);
    const Tensor x = in(a.x), m = in(a.multiply), r = in(a.residual), g = in(a.gate);
    inner_->linear({.x = x,
                    .weight = weight,
                    .out = out,
                    .activation = a.activation,
                    .multiply = a.multiply ? &m : nullptr,
                    .residual = a.residual ? &r : nullptr,
                    .gate = a.gate ? &g : nullptr});
    back(out, a.out);
  }
  void attention(const AttentionArgs& a) override {
    Tensor out = begin(a.out);
    const Tensor q = in(a.q), k = in(a.k), v = in(a.v), mask = in(a.key_mask);
    inner_->attention({.q = q,
                       .k = k,
                       .v = v,
                       .out = out,
                       .scale = a.scale,
                       .causal = a.causal,
                       .key_mask = a.key_mask ? &mask : nullptr,
                       .segment_ends = a.segment_ends});
    back(out, a.out);
  }
  void rms_norm(const RmsNormArgs& a) override {
    Tensor out = begin(a.out);
    const Tensor x = in(a.x), w = in(a.weight);
    inner_->rms_norm({.x = x, .weight = a.weight ? &w : nullptr, .out = out, .eps = a.eps});
    back(out, a.out);
  }
  void layer_norm(const LayerNormArgs& a) override {
    Tensor out = begin(a.out);
    const Tensor x = in(a.x), w = in(a.weight), b = in(a.bias), s = in(a.scale), h = in(a.shift);
    inner_->layer_norm({.x = x,
                        .out = out,
                        .eps = a.eps,
                        .weight = a.weight ? &w : nullptr,
                        .bias = a.bias ? &b : nullptr,
                        .scale = a.scale ? &s : nullptr,
                        .shift = a.shift ? &h : nullptr});
    back(out, a.out);
  }
  void head_norm_rope(const HeadNormRopeArgs& a) override {
    Tensor out = begin(a.out);
    const Tensor x = in(a.x), w = in(a.weight), c = in(a.cos), s = in(a.sin);
    inner_->head_norm_rope({.x = x,
                            .out = out,
                            .weight = a.weight ? &w : nullptr,
                            .eps = a.eps,
                            .style = a.style,
                            .cos = a.cos ? &c : nullptr,
                            .sin = a.sin ? &s : nullptr});
    back(out, a.out);
  }
  void add_gated(const AddGatedArgs& a) override {
    Tensor out = begin(a.out);
    const Tensor x = in(a.x), g = in(a.gate), y = in(a.y);
    inner_->add_gated({.x = x, .gate = g, .y = y, .out = out});
    back(out, a.out);
  }
  void unary(const UnaryArgs& a) override {
    Tensor out = begin(a.out);
    const Tensor x = in(a.x);
    inner_->unary({.op = a.op, .x = x, .out = out});
    back(out, a.out);
  }
  void binary(const BinaryArgs& a) override {
    Tensor out = begin(a.out);
    const Tensor x = in(a.a), y = in(a.b);
    inner_->binary({.op = a.op, .a = x, .b = y, .out = out});
    back(out, a.out);
  }
  void conv2d(const Conv2dArgs& a) override {
    Tensor out = begin(a.out);
    ConvWeight weight = a.weight;
    if (!weight.prepared) {
      weight.weight = in(weight.weight);
      weight.bias = in(weight.bias);
    }
    const Tensor x = in(a.x), r = in(a.residual);
    inner_->conv2d({.x = x,
                    .weight = weight,
                    .out = out,
                    .stride = a.stride,
                    .pad_top = a.pad_top,
                    .pad_left = a.pad_left,
                    .pad_bottom = a.pad_bottom,
                    .pad_right = a.pad_right,
                    .residual = a.residual ? &r : nullptr});
    back(out, a.out);
  }
  void channel_norm(const ChannelNormArgs& a) override {
    Tensor out = begin(a.out);
    const Tensor x = in(a.x), g = in(a.gamma);
    inner_->channel_norm({.x = x, .gamma = g, .out = out, .silu = a.silu});
    back(out, a.out);
  }
  void euler_step(const EulerStepArgs& a) override {
    Tensor out = begin(a.out);
    const Tensor x = in(a.x), v = in(a.velocity);
    inner_->euler_step({.x = x, .velocity = v, .out = out, .dt = a.dt});
    back(out, a.out);
  }
  void denormalize(const DenormalizeArgs& a) override {
    Tensor out = begin(a.out);
    const Tensor x = in(a.x), s = in(a.inverse_std), m = in(a.mean);
    inner_->denormalize({.x = x, .inverse_std = s, .mean = m, .out = out});
    back(out, a.out);
  }
  void pixels(const PixelsArgs& a) override {
    Tensor out = begin(a.out);
    const Tensor x = in(a.x);
    inner_->pixels({.x = x, .out = out});
    back(out, a.out);
  }
  void gather(const GatherArgs& a) override {
    Tensor out = begin(a.out);
    const Tensor table = in(a.table), ids = in(a.ids);
    inner_->gather({.table = table, .ids = ids, .out = out});
    back(out, a.out);
  }
  void guidance(const GuidanceArgs& a) override {
    Tensor out = begin(a.out);
    const Tensor c = in(a.cond), u = in(a.uncond);
    inner_->guidance({.cond = c, .uncond = u, .out = out, .scale = a.scale, .rescale = a.rescale});
    back(out, a.out);
  }
  void copy(const CopyArgs& a) override {
    Tensor to = begin(a.to);
    const Tensor from = in(a.from);
    inner_->copy({.from = from, .to = to});
    back(to, a.to);
  }

 private:
  // The bytes from the first to the last element of a view, uploaded, and the same view of them.
  Tensor in(const Tensor& host) {
    if (!host.defined()) return {};
    const auto key = std::make_pair(host.strided_data(), host.shape());
    if (const auto found = here_.find(key); found != here_.end() && found->second.dtype() == host.dtype())
      return found->second;
    const int64_t item = static_cast<int64_t>(dtype_bytes(host.dtype()));
    int64_t low = 0, high = host.numel() ? item : 0;
    for (size_t i = 0; i < host.rank() && host.numel(); ++i) {
      const int64_t reach = (host.shape()[i] - 1) * host.strides()[i] * item;
      (reach < 0 ? low : high) += reach;
    }
    const Tensor bytes = Tensor::wrap(host.strided_data() + low, DType::kU8, {high - low}, nullptr);
    const Tensor there = inner_->upload(bytes);
    return here_[key] = Tensor::on(there.storage(), host.dtype(), host.shape(), host.strides(), -low);
  }
  Tensor begin(const Tensor& out) {
    here_.clear();
    return in(out);
  }
  Tensor in(const Tensor* host) { return host ? in(*host) : Tensor(); }
  void back(const Tensor& device, Tensor& host) { copy_strided(device.host(), host); }

  std::unique_ptr<Backend> inner_;
  std::map<std::pair<const std::byte*, Shape>, Tensor> here_;  // of this call: an operand may be the result itself
};

inline std::unique_ptr<Backend> staged(std::unique_ptr<Backend> inner) {
  return std::make_unique<Staged>(std::move(inner));
}

}  // namespace lockstep::testing
