#include "pipeline/scheduler.h"

#include <cmath>

#include "base/error.h"
#include "pipeline/map_floats.h"

namespace lockstep {

SchedulerConfig read_scheduler_config(const fs::path& path) {
  const models::ConfigReader reader = models::read_config(path, "FlowMatchEulerDiscreteScheduler");
  for (const char* flag :
       {"invert_sigmas", "stochastic_sampling", "use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas"})
    if (reader.boolean_or(flag, false)) reader.refuse(flag, "false");
  if (!reader.boolean_or("use_dynamic_shifting", false)) reader.refuse("use_dynamic_shifting", "true");
  if (reader.text_or("time_shift_type", "exponential") != "exponential")
    reader.refuse("time_shift_type", "exponential");
  SchedulerConfig config;
  // The official pipeline falls back to another curve when one of these is absent; a silent change of curve is worse
  // than an error.
  config.base_shift = reader.number("base_shift");
  config.max_shift = reader.number("max_shift");
  config.base_tokens = reader.number("base_image_seq_len");
  config.max_tokens = reader.number("max_image_seq_len");
  if (config.max_tokens == config.base_tokens)
    reader.refuse("max_image_seq_len", "another value than base_image_seq_len");
  config.train_timesteps = reader.number_or("num_train_timesteps", 1000);
  if (config.train_timesteps != 1000) reader.refuse("num_train_timesteps", "1000");
  if (reader.has("shift_terminal") && reader.number("shift_terminal") != 0)
    config.shift_terminal = reader.number("shift_terminal");
  return config;
}

SchedulerConfig lightning_scheduler() {
  const double shift = std::log(3.0);
  return {.base_shift = shift, .max_shift = shift, .base_tokens = 256, .max_tokens = 8192, .shift_terminal = {}};
}

Schedule make_schedule(const SchedulerConfig& config, int steps, int64_t image_tokens,
                       const std::vector<double>& custom) {
  if (!custom.empty()) steps = static_cast<int>(custom.size());
  if (steps < 1)
    fail(Code::kBadInput, "schedule", "too few steps", {.expected = "1 or more", .got = std::to_string(steps)});
  std::vector<float> sigmas(static_cast<size_t>(steps));
  for (size_t i = 0; i < sigmas.size(); ++i) {
    const double last =
        1.0 / steps;  // linspace(1, 1/n, n) in f64, as NumPy computes it: start + i * step, the end exact
    const double step = steps > 1 ? (last - 1.0) / (steps - 1) : 0;
    double value = static_cast<double>(i) * step + 1.0;
    if (steps > 1 && i + 1 == sigmas.size()) value = last;
    sigmas[i] = static_cast<float>(custom.empty() ? value : custom[i]);
  }
  const double slope = (config.max_shift - config.base_shift) / (config.max_tokens - config.base_tokens);
  const double mu = static_cast<double>(image_tokens) * slope + (config.base_shift - slope * config.base_tokens);
  const float e = static_cast<float>(std::exp(mu));
  for (float& s : sigmas) s = e / (e + (1.0f / s - 1.0f));
  if (config.shift_terminal) {
    const float end = 1.0f - sigmas.back();
    if (end == 0)
      fail(Code::kBadInput, "schedule",
           "one step ends where it starts, and the stretch to shift_terminal divides 0 by 0",
           {.expected = "2 steps or more", .got = std::to_string(steps), .hint = "--steps 2 or more"});
    const float factor = end / static_cast<float>(1 - *config.shift_terminal);
    for (float& s : sigmas) s = 1.0f - (1.0f - s) / factor;
  }
  sigmas.push_back(0);
  return {std::move(sigmas)};
}

float Schedule::model_timestep(int step, DType latents) const {
  const float timestep = rounded_to(latents, sigmas[static_cast<size_t>(step)] * 1000.0f);
  return rounded_to(latents, timestep / 1000.0f);
}

Tensor euler_step(const Schedule& schedule, int step, const Tensor& latents, const Tensor& velocity) {
  // torch multiplies a 0-d f32 tensor by a bf16 one in bf16: the step size itself is rounded too.
  const float dt = rounded_to(
      velocity.dtype(), schedule.sigmas[static_cast<size_t>(step) + 1] - schedule.sigmas[static_cast<size_t>(step)]);
  return map_floats(
      velocity.dtype(), [&](int64_t, float x, float v) { return x + rounded_to(velocity.dtype(), dt * v); }, latents,
      velocity);
}

}  // namespace lockstep
