// Flow matching with Euler steps: the sigmas of the official scheduler, value for value, and its step.
#pragma once
#include <optional>
#include <vector>

#include "models/config_reader.h"
#include "tensor/tensor.h"

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

// `custom`: sigmas of the user's own; they pass through shift and stretch as well.
Schedule make_schedule(const SchedulerConfig& config, int steps, int64_t image_tokens,
                       const std::vector<double>& custom = {});

// x + (s_next - s) * v. In bf16 the product is rounded before the f32 sum, and the sum again: that order is part of the
// result.
Tensor euler_step(const Schedule& schedule, int step, const Tensor& latents, const Tensor& velocity);

}  // namespace lockstep
