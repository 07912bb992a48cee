// Flow matching with Euler steps: the sigmas of the official scheduler, value for value, and its step.
#pragma once
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "models/config_reader.h"

namespace lockstep {

struct SchedulerConfig {
  double base_shift = 0, max_shift = 0, base_tokens = 0, max_tokens = 0;
  std::optional<double> shift_terminal;
  double train_timesteps = 1000;
};

SchedulerConfig read_scheduler_config(const fs::path& path);

// Distilled for 4 or 8 steps: the shift is 3 at every size, and nothing is stretched.
SchedulerConfig lightning_scheduler();

struct Schedule {
  std::vector<float> sigmas;  // one more than steps; the last is 0

  int steps() const { return static_cast<int>(sigmas.size()) - 1; }
  // What the model is given for step i: 1000 * sigma in the latents' dtype, divided by 1000 in that dtype.
  float model_timestep(int step, DType latents) const;
};

// From sigmas before the shift, in f64: "mu" moves them towards noise, and shift_terminal stretches them.
Schedule make_schedule(const SchedulerConfig& config, const std::vector<double>& sigmas, double mu);
double shift_for(const SchedulerConfig& config, int64_t image_tokens);  // mu of text to image and editing
std::vector<double> evenly_spaced_sigmas(int steps);                    // 1 to 1/n

// `custom`: sigmas of the user's own; they pass through shift and stretch as well.
Schedule make_schedule(const SchedulerConfig& config, int steps, int64_t image_tokens,
                       const std::vector<double>& custom = {});

// x + (s_next - s) * v. In bf16 the product is rounded before the f32 sum, and the sum again: that order is part of the
// result.
Tensor euler_step(Backend& backend, const Schedule& schedule, int step, const Tensor& latents, const Tensor& velocity);

// s * noise + (1 - s) * image, s being the sigma that step `step` starts from.
Tensor with_noise(Backend& backend, const Schedule& schedule, int step, const Tensor& image, const Tensor& noise);

// The first step of a schedule of which only the share `strength` is gone through.
int first_step_for(double strength, int steps);

}  // namespace lockstep
