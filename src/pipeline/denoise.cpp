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
  if (rows == 2 * latents.dim(0)) input = ops::concat(backend, input, input, 0);
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
  const int64_t pictures = latents.dim(0);
  if (passes_.size() == 1) return guided(first.slice(0, 0, pictures), first.slice(0, pictures, 2 * pictures));
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

// Whether two pictures go the same way: then every row of a batch has the bits that it has alone.
bool alike(const Denoising& a, const Denoising& b) {
  const auto same_shape = [](const Tensor& x, const Tensor& y) {
    return x.defined() == y.defined() && (!x.defined() || x.shape() == y.shape());
  };
  const auto same_grid = [](const models::Grid& x, const models::Grid& y) {
    return x.frames == y.frames && x.height == y.height && x.width == y.width;
  };
  return !a.kept && !b.kept && same_shape(a.text.cond, b.text.cond) && same_shape(a.text.uncond, b.text.uncond) &&
         same_shape(a.latents, b.latents) && same_shape(a.condition, b.condition) &&
         std::equal(a.grids.begin(), a.grids.end(), b.grids.begin(), b.grids.end(), same_grid) &&
         a.schedule.sigmas == b.schedule.sigmas && a.first_step == b.first_step && a.guidance == b.guidance &&
         a.rescale == b.rescale;
}

std::vector<std::vector<size_t>> batches(const Stages& stages, const std::vector<Denoising>& work) {
  std::vector<std::vector<size_t>> all;
  for (size_t i = 0; i < work.size(); ++i) {
    int64_t tokens = 0;
    for (const models::Grid& grid : work[i].grids) tokens += grid.tokens();
    const auto most = static_cast<size_t>(std::max<int64_t>(1, stages.settings().batch_tokens / tokens));
    const auto open = std::find_if(all.begin(), all.end(), [&](const std::vector<size_t>& batch) {
      return batch.size() < most && !stages.listening() && alike(work[batch.front()], work[i]);
    });
    if (open == all.end())
      all.push_back({i});
    else
      open->push_back(i);
  }
  return all;
}

// Several of one shape as one, with a row each.
Denoising together(const Stages& stages, const std::vector<Denoising>& work, const std::vector<size_t>& rows) {
  Denoising all = work[rows.front()];
  const auto append = [&](Tensor& to, const Tensor& row) {
    if (to.defined()) to = ops::concat(stages.backend(), to, row, 0);
  };
  for (size_t i = 1; i < rows.size(); ++i) {
    const Denoising& one = work[rows[i]];
    append(all.text.cond, one.text.cond);
    append(all.text.uncond, one.text.uncond);
    append(all.latents, one.latents);
    append(all.condition, one.condition);
  }
  return all;
}

// One batch, from which pictures may be dropped while it runs.
class DenoisedBatch {
 public:
  DenoisedBatch(const Stages& stages, const models::QwenImageTransformer& transformer, std::vector<Denoising>& work,
                std::vector<size_t> rows)
      : stages_(stages), transformer_(transformer), work_(work), rows_(std::move(rows)) {
    start();
  }

  void run(const std::function<void(int64_t steps)>& done) {
    const StopWhen somebody_left = stages_.stop_at_layer([this] { return any_dropped(); });
    for (int step = work_[rows_.front()].first_step; step < all_.schedule.steps();) {
      // The step in which somebody leaves is taken again by those who stay, from where it began.
      if (any_dropped() && !drop()) return;
      try {
        take(step);
      } catch (const Error& error) {
        if (error.code() != Code::kCancelled || !any_dropped()) throw;
        continue;
      }
      done(static_cast<int64_t>(rows_.size()));
      ++step;
    }
  }
  const std::vector<size_t>& rows() const { return rows_; }
  Tensor latents(size_t row) const { return row_of(all_.latents, row); }

 private:
  void start() {
    all_ = together(stages_, work_, rows_);
    for (const size_t i : rows_) work_[i].latents = {};
    denoiser_ = std::make_unique<Denoiser>(stages_, transformer_, all_);
  }
  Tensor row_of(const Tensor& tensor, size_t row) const {
    const auto at = static_cast<int64_t>(row);
    return rows_.size() == 1 ? tensor : ops::contiguous(stages_.backend(), tensor.slice(0, at, at + 1));
  }
  bool any_dropped() const {
    return std::any_of(rows_.begin(), rows_.end(), [this](size_t i) { return stages_.dropped(i); });
  }
  bool drop() {  // false: nobody is left
    std::vector<size_t> left;
    for (size_t row = 0; row < rows_.size(); ++row)
      if (!stages_.dropped(rows_[row])) {
        work_[rows_[row]].latents = row_of(all_.latents, row);
        left.push_back(rows_[row]);
      }
    rows_ = std::move(left);
    if (rows_.empty()) return false;
    start();
    return true;
  }
  void take(int step) {
    check_interrupt("generate");
    const int shown = step - all_.first_step;  // steps are counted from the first that is taken
    const Schedule& schedule = all_.schedule;
    const Tensor before = all_.latents;
    const Tensor v = denoiser_->velocity(before, schedule.model_timestep(step, before.dtype()), shown);
    Tensor after = stages_.tap("latents", euler_step(stages_.backend(), schedule, step, before, v), shown);
    if (all_.kept)
      after =
          stages_.tap("latents_kept", keep_outside_mask(stages_.backend(), *all_.kept, after, schedule, step), shown);
    stages_.backend().flush();
    all_.latents = after;
    if (RunWatch* const watch = stages_.settings().watch)
      for (size_t row = 0; row < rows_.size(); ++row)
        watch->stepped({.request = rows_[row],
                        .step = shown + 1,
                        .steps = schedule.steps() - all_.first_step,
                        .latents = row_of(before, row),
                        .velocity = row_of(v, row),
                        .sigma = schedule.sigmas[static_cast<size_t>(step)],
                        .grid = all_.grids.front()});
  }

  const Stages& stages_;
  const models::QwenImageTransformer& transformer_;
  std::vector<Denoising>& work_;
  std::vector<size_t> rows_;  // which of the work each row is
  Denoising all_;
  std::unique_ptr<Denoiser> denoiser_;
};

}  // namespace

std::vector<Tensor> denoise(const Stages& stages, std::vector<Denoising> work) {
  int64_t total = 0, done = 0;
  for (const Denoising& item : work) total += item.schedule.steps() - item.first_step;
  const auto transformer = stages.transformer();
  stages.report("denoise", 0, total);
  std::vector<Tensor> results(work.size());
  for (std::vector<size_t>& rows : batches(stages, work)) {
    DenoisedBatch batch(stages, *transformer, work, std::move(rows));
    batch.run([&](int64_t steps) { stages.report("denoise", done += steps, total); });
    for (size_t row = 0; row < batch.rows().size(); ++row) results[batch.rows()[row]] = batch.latents(row);
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
  if (!request.latents && request.noise == NoiseStream::kTorchCuda) {
    Tensor drawn = stages.backend().allocate(stages.dtype(), unpacked);
    stages.backend().torch_cuda_normals(request.seed, drawn);
    latents = pack_frames(stages.backend(), drawn);
  } else if (!request.latents) {
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
