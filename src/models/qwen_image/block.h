// One dual-stream block: image and text tokens, modulated by the timestep, meet in joint attention.
#pragma once
#include <optional>

#include "models/qwen_image/rope.h"
#include "nn/layers.h"

namespace lockstep::models {

struct Streams {
  Tensor img;  // [B, N, D]
  Tensor txt;  // [B, T, D]
};

struct Modulation {  // each [B, D]
  Tensor shift, scale, gate;
};

// What modulates the rows of a stream: one for all of them, or one for the first rows and another for the rest, which
// are condition pictures in a model that sees those at time 0.
struct RowModulation {
  Modulation first;
  std::optional<Modulation> rest;
  int64_t first_rows = 0;

  Tensor norm_modulate(const Tensor& x, float eps, Backend& backend) const;
  Tensor add_gated(const Tensor& x, const Tensor& y, Backend& backend) const;  // x + gate * y
};

// What a block is told of the timesteps: the activated embedding, or what it would make of it when that was made ahead.
struct TimeRows {
  Tensor temb;              // [B, D]; or [2B, D], whose second half modulates the image rows behind the targets
  Tensor img_mod, txt_mod;  // [B, 6D] or [2B, 6D]
};

class JointAttention {
 public:
  JointAttention(const nn::Weights& weights, const QwenImageConfig& config);
  // What comes back is before the output projections: the block adds those with gate and residual in one kernel where
  // it can.
  Streams forward(const Streams& x, const Rope& rope, const Tensor* key_mask, const nn::Ctx& ctx) const;
  Streams project(const Streams& attended, const Streams& residual, const RowModulation& img, const RowModulation& txt,
                  const nn::Ctx& ctx) const;

 private:
  Tensor joined(const Streams& x, const nn::Linear& img, const nn::Linear& txt, std::string_view img_name,
                std::string_view txt_name, const nn::Ctx& ctx) const;
  void normed_rotated(const Tensor& x, const nn::RmsNorm& norm, const RopeTable& rope, std::string_view name,
                      Tensor out, const nn::Ctx& ctx) const;
  Tensor values(const Streams& x, const nn::Ctx& ctx) const;
  Tensor heads(const Streams& x, const Rope& rope, bool queries, const nn::Ctx& ctx) const;
  Tensor output(const nn::Linear& linear, std::string_view name, std::string_view tuple_name, const Tensor& x,
                const Tensor& residual, const RowModulation& modulation, const nn::Ctx& ctx) const;

  nn::Linear to_q_, to_k_, to_v_, add_q_, add_k_, add_v_, to_out_, to_add_out_;
  nn::RmsNorm norm_q_, norm_k_, norm_added_q_, norm_added_k_;
  int64_t heads_, head_width_;
};

class TransformerBlock {
 public:
  TransformerBlock(const nn::Weights& weights, const QwenImageConfig& config);
  // targets: the first image rows, which are drawn; those behind them are condition pictures.
  Streams forward(const Streams& x, const TimeRows& time, int64_t targets, const Rope& rope, const Tensor* key_mask,
                  const nn::Ctx& ctx) const;
  // The modulations of any number of timesteps, [R, 6D] each, into rows that are there.
  void modulate_ahead(const Tensor& temb, Tensor img_mod, Tensor txt_mod, Backend& backend) const;

 private:
  std::pair<RowModulation, RowModulation> modulation(const Tensor& all, const Tensor& x, int64_t targets) const;
  Tensor modulated(const Tensor& x, const RowModulation& modulation, std::string_view norm, const nn::Ctx& ctx) const;
  Tensor fed_forward(const nn::FeedForward& mlp, const Tensor& x, const RowModulation& modulation,
                     std::string_view norm, std::string_view name, const nn::Ctx& ctx) const;

  nn::Linear img_mod_, txt_mod_;
  JointAttention attn_;
  nn::FeedForward img_mlp_, txt_mlp_;
  int64_t width_;
};

}  // namespace lockstep::models
