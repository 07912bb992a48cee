#include "pipeline/denoise.h"

#include <algorithm>

#include "base/error.h"
#include "base/interrupt.h"
#include "ops/elementwise.h"
#include "pipeline/latents.h"
#include "tensor/convert.h"

namespace lockstep {

using nn::Ctx;
using nn::Execution;

namespace {

// One pass of the transformer: what stays the same in all steps of a picture.
struct Pass {
  std::string_view name;  // "cond", "uncond"; empty for both as one batch
  Tensor text;            // [B, T, D]
  Tensor key_mask;        // bool [B, T + N], or undefined
  models::Rope rope;
  std::unique_ptr<Repeated> repeated;  // latents, modulations → velocity
};

class Denoiser {
 public:
  Denoiser(const Stages& stages, const models::QwenImageTransformer& transformer, const Denoising& work)
      : stages_(stages), transformer_(transformer), work_(work) {
    prepare_passes();
  }
  Tensor velocity(const Tensor& latents, float timestep, int step);

 private:
  void prepare_passes();
  void add_pass(std::string_view name, const Tensor& text, const Tensor& mask = {}) {
    Backend& backend = stages_.backend();
    passes_.push_back({name, text, mask.defined() ? backend.upload(mask) : Tensor(),
                       models::uploaded(backend, models::make_rope(transformer_.config(), work_.grids, text.dim(1))),
                       nullptr});
  }
  Tensor predict(Pass& pass, const Tensor& latents, float timestep, int step);
  Tensor modulations(int64_t rows, int step);  // of this step of the schedule: [rows, ...]

  const Stages& stages_;
  const models::QwenImageTransformer& transformer_;
  const Denoising& work_;
  std::vector<Pass> passes_;
  Tensor ahead_;  // modulations of the steps from first_ahead_ on
  int64_t batch_ahead_ = 0, rows_a_step_ = 0;
  int first_ahead_ = 0;
};

Tensor Denoiser::modulations(int64_t rows, int step) {
  const bool held = ahead_.defined() && batch_ahead_ == rows && step >= first_ahead_ &&
                    (step - first_ahead_ + 1) * rows_a_step_ <= ahead_.dim(0);
  if (!held) {
    const int end = std::min(step + kStepsAhead, work_.schedule.steps());
    std::vector<Tensor> told;
    for (int next = step; next < end; ++next) {
      const std::vector<float> times(static_cast<size_t>(rows), work_.schedule.model_timestep(next, stages_.dtype()));
      told.push_back(transformer_.features_of(times));
    }
    rows_a_step_ = told.front().dim(0);
    Tensor features = Tensor::empty(DType::kF32, {rows_a_step_ * (end - step), told.front().dim(1)});
    for (size_t i = 0; i < told.size(); ++i) {
      Tensor to = features.slice(0, static_cast<int64_t>(i) * rows_a_step_, static_cast<int64_t>(i + 1) * rows_a_step_);
      copy_strided(told[i], to);
    }
    ahead_ = {};
    ahead_ = transformer_.modulations(stages_.backend().upload(features), Ctx(stages_.execution(), "transformer"));
    first_ahead_ = step;
    batch_ahead_ = rows;
  }
  const int64_t at = (step - first_ahead_) * rows_a_step_;
  return ahead_.slice(0, at, at + rows_a_step_);
}

void Denoiser::prepare_passes() {
  const Embeddings& text = work_.text;
  if (!text.uncond.defined()) return add_pass("cond", text.cond);
  int64_t image_tokens = 0;
  for (const models::Grid& grid : work_.grids) image_tokens += grid.tokens();
  // A listener is offered each pass under its own name, as the official pipeline runs them.
  if (!stages_.listening() &&
      runs_as_batch(stages_.settings().guidance, image_tokens, text.cond.dim(1), text.uncond.dim(1))) {
    const PaddedText both = pad_together(stages_.backend(), text.cond, text.uncond);
    return add_pass("", both.text,
                    text.cond.dim(1) != text.uncond.dim(1) ? models::joint_mask(both.mask, image_tokens) : Tensor());
  }
  add_pass("cond", text.cond);
  add_pass("uncond", text.uncond);
}

Tensor Denoiser::predict(Pass& pass, const Tensor& latents, float timestep, int step) {
  Backend& backend = stages_.backend();
  const int64_t rows = pass.text.dim(0), targets = latents.dim(1);
  Tensor input = work_.condition.defined() ? ops::concat(backend, latents, work_.condition, 1) : latents;
  if (rows == 2) input = ops::concat(backend, input, input, 0);
  const Execution stage = stages_.execution(step, pass.name);
  const auto forward = [this, &pass](const Execution& execution, const Tensor& x, const Tensor* modulations,
                                     std::vector<float> times) {
    return transformer_.forward({.latents = x,
                                 .text = pass.text,
                                 .timesteps = std::move(times),
                                 .rope = &pass.rope,
                                 .modulations = modulations,
                                 .key_mask = pass.key_mask.defined() ? &pass.key_mask : nullptr,
                                 .target_tokens = work_.grids.front().tokens()},
                                Ctx(execution, "transformer"));
  };
  Tensor v;
  if (stages_.listening()) {  // every tensor of every step is offered
    v = forward(stage, input, nullptr, std::vector<float>(static_cast<size_t>(rows), timestep));
  } else {
    if (!pass.repeated)
      pass.repeated = backend.repeated([this, forward](const std::vector<Tensor>& inputs) {
        return forward(stages_.execution(), inputs[0], &inputs[1], {});
      });
    v = pass.repeated->run({input, modulations(rows, work_.first_step + step)});
  }
  // Velocities of condition pictures are computed and left.
  const Tensor target = work_.condition.defined() ? ops::contiguous(backend, v.slice(1, 0, targets)) : v;
  return pass.name.empty() ? target : stages_.tap("noise_pred", target, step, pass.name);
}

Tensor Denoiser::velocity(const Tensor& latents, float timestep, int step) {
  const Tensor first = predict(passes_[0], latents, timestep, step);
  const auto guided = [&](const Tensor& cond, const Tensor& uncond) {
    return ops::guidance(stages_.backend(), cond, uncond, work_.guidance, work_.rescale);
  };
  if (!work_.text.uncond.defined()) return first;
  if (passes_.size() == 1) return guided(first.slice(0, 0, 1), first.slice(0, 1, 2));
  return stages_.tap("noise_pred", guided(first, predict(passes_[1], latents, timestep, step)), step, "combined");
}

Tensor keep_outside_mask(Backend& backend, const KeptPicture& kept, const Tensor& latents, const Schedule& schedule,
                         int step) {
  const Tensor original =
      step + 1 < schedule.steps() ? with_noise(backend, schedule, step + 1, kept.image, kept.noise) : kept.image;
  const Tensor one = backend.upload(Tensor::from<float>({1}, {1.0f}).to(latents.dtype()));
  return ops::binary(
      backend, BinaryOp::kAdd,
      ops::binary(backend, BinaryOp::kMultiply, ops::binary(backend, BinaryOp::kSubtract, one, kept.mask), original),
      ops::binary(backend, BinaryOp::kMultiply, kept.mask, latents));
}

}  // namespace

std::vector<Tensor> denoise(const Stages& stages, std::vector<Denoising> work) {
  int64_t total = 0, done = 0;
  for (const Denoising& item : work) total += item.schedule.steps() - item.first_step;
  const models::QwenImageTransformer transformer = stages.model().transformer(
      stages.backend(), stages.dtype(), stages.settings().linears, stages.loading("load transformer"));
  stages.report("denoise", 0, total);
  std::vector<Tensor> results;
  for (Denoising& item : work) {
    Denoiser denoiser(stages, transformer, item);
    Tensor latents = std::move(item.latents);
    for (int step = item.first_step; step < item.schedule.steps(); ++step) {
      check_interrupt("generate");
      const int shown = step - item.first_step;  // steps are counted from the first that is taken
      const Tensor v = denoiser.velocity(latents, item.schedule.model_timestep(step, latents.dtype()), shown);
      latents = stages.tap("latents", euler_step(stages.backend(), item.schedule, step, latents, v), shown);
      if (item.kept)
        latents = stages.tap("latents_kept",
                             keep_outside_mask(stages.backend(), *item.kept, latents, item.schedule, step), shown);
      stages.backend().flush();
      stages.report("denoise", ++done, total);
    }
    results.push_back(std::move(latents));
  }
  return results;
}

Tensor draw_noise(const Stages& stages, int64_t frames, int64_t channels, int64_t height, int64_t width,
                  TorchGenerator& generator) {
  return stages.backend().upload(torch_randn({1, frames, channels, height, width}, stages.dtype(), generator));
}

Tensor initial_latents(const Stages& stages, const GenerateRequest& request, int64_t frames, int64_t channels,
                       int64_t height, int64_t width, TorchGenerator& generator) {
  const Shape packed{1, frames * (height / 2) * (width / 2), channels * 4},
      unpacked{1, frames, channels, height, width};
  Tensor latents;
  if (!request.latents) {
    latents = pack_frames(stages.backend(), draw_noise(stages, frames, channels, height, width, generator));
  } else {
    const Tensor& given = *request.latents;
    const bool one_frame = frames == 1 && given.shape() == Shape{1, channels, 1, height, width};
    latents = stages.backend().upload(given.to(stages.dtype()));
    if (given.shape() == unpacked || one_frame)
      latents = pack_frames(stages.backend(), ops::contiguous(stages.backend(), latents).reshape(unpacked));
    if (latents.shape() != packed)
      fail(Code::kBadInput, "latents", "the file's shape does not fit the image size",
           {.expected = to_string(packed) + " or " + to_string(unpacked),
            .got = to_string(given.shape()),
            .hint = "the --width and --height that the noise was made for"});
  }
  return stages.tap("initial_latents_packed", latents);
}

}  // namespace lockstep
