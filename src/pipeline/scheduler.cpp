#include "pipeline/scheduler.h"

#include <cmath>

#include "backend/map_floats.h"
#include "base/error.h"
#include "ops/elementwise.h"

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

std::vector<double> evenly_spaced_sigmas(int steps) {
  std::vector<double> sigmas;
  const double last = 1.0 / steps;  // linspace(1, 1/n, n) in f64, as NumPy computes it: start + i * step, the end exact
  const double step = steps > 1 ? (last - 1.0) / (steps - 1) : 0;
  for (int i = 0; i < steps; ++i) sigmas.push_back(static_cast<double>(i) * step + 1.0);
  if (steps > 1) sigmas.back() = last;
  return sigmas;
}

double shift_for(const SchedulerConfig& config, int64_t image_tokens) {
  const double slope = (config.max_shift - config.base_shift) / (config.max_tokens - config.base_tokens);
  return static_cast<double>(image_tokens) * slope + (config.base_shift - slope * config.base_tokens);
}

Schedule make_schedule(const SchedulerConfig& config, int steps, int64_t image_tokens,
                       const std::vector<double>& custom) {
  if (custom.empty() && steps < 1)
    fail(Code::kBadInput, "schedule", "too few steps", {.expected = "1 or more", .got = std::to_string(steps)});
  return make_schedule(config, custom.empty() ? evenly_spaced_sigmas(steps) : custom, shift_for(config, image_tokens));
}

Schedule make_schedule(const SchedulerConfig& config, const std::vector<double>& given, double mu) {
  std::vector<float> sigmas(given.begin(), given.end());
  const float e = static_cast<float>(std::exp(mu));
  for (float& s : sigmas) s = e / (e + (1.0f / s - 1.0f));
  if (config.shift_terminal) {
    const float end = 1.0f - sigmas.back();
    if (end == 0)
      fail(Code::kBadInput, "schedule",
           "one step ends where it starts, and the stretch to shift_terminal divides 0 by 0",
           {.expected = "2 steps or more", .got = std::to_string(sigmas.size()), .hint = "--steps 2 or more"});
    const float factor = end / static_cast<float>(1 - *config.shift_terminal);
    for (float& s : sigmas) s = 1.0f - (1.0f - s) / factor;
  }
  sigmas.push_back(0);
  return {std::move(sigmas)};
}

Tensor with_noise(Backend& backend, const Schedule& schedule, int step, const Tensor& image, const Tensor& noise) {
  const DType dtype = image.dtype();
  const float sigma = rounded_to(dtype, schedule.sigmas[static_cast<size_t>(step)]);
  const auto times = [&](const Tensor& x, float factor) {
    return ops::binary(backend, BinaryOp::kMultiply, x, backend.upload(Tensor::from<float>({1}, {factor}).to(dtype)));
  };
  return ops::binary(backend, BinaryOp::kAdd, times(noise, sigma), times(image, 1.0f - sigma));
}

int first_step_for(double strength, int steps) {
  const double gone_through = std::min(steps * strength, static_cast<double>(steps));
  return static_cast<int>(std::max(steps - gone_through, 0.0));
}

float Schedule::model_timestep(int step, DType latents) const {
  const float timestep = rounded_to(latents, sigmas[static_cast<size_t>(step)] * 1000.0f);
  return rounded_to(latents, timestep / 1000.0f);
}

Tensor euler_step(Backend& backend, const Schedule& schedule, int step, const Tensor& latents, const Tensor& velocity) {
  // torch multiplies a 0-d f32 tensor by a bf16 one in bf16: the step size itself is rounded too.
  const float dt = rounded_to(
      velocity.dtype(), schedule.sigmas[static_cast<size_t>(step) + 1] - schedule.sigmas[static_cast<size_t>(step)]);
  return ops::euler_step(backend, latents, velocity, dt);
}

}  // namespace lockstep
