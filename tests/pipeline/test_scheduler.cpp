// The schedule, bit for bit, and the Euler step in f32 and bf16.
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "pipeline/model_folder.h"
#include "pipeline/scheduler.h"
#include "support/golden_recording.h"

namespace lockstep {
namespace {

using testing::kGoldens;

SchedulerConfig config_from(const Json& json) {
  SchedulerConfig config{.base_shift = json["base_shift"],
                         .max_shift = json["max_shift"],
                         .base_tokens = json["base_image_seq_len"],
                         .max_tokens = json["max_image_seq_len"],
                         .shift_terminal = {}};
  if (!json["shift_terminal"].is_null()) config.shift_terminal = json["shift_terminal"].get<double>();
  return config;
}

TEST(Scheduler, SigmasAndTimestepsEqualTheOfficialOnes) {
  const Json golden = read_json(kGoldens / "scheduler/sigmas.json");
  size_t cases = 0;
  for (const Json& item : golden["cases"]) {
    const std::vector<double> custom =
        item["custom_sigmas"].is_null() ? std::vector<double>{} : item["custom_sigmas"].get<std::vector<double>>();
    const Schedule schedule = make_schedule(config_from(golden["configs"][item["scheduler"].get<std::string>()]),
                                            item["steps"], item["tokens"], custom);
    const auto expected = item["sigmas"].get<std::vector<float>>();
    ASSERT_EQ(schedule.sigmas.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_FLOAT_EQ(schedule.sigmas[i], expected[i]) << item.dump().substr(0, 120) << " at " << i;
    for (int i = 0; i < schedule.steps(); ++i) {
      EXPECT_FLOAT_EQ(schedule.model_timestep(i, DType::kF32),
                      item["model_timesteps_f32"][static_cast<size_t>(i)].get<float>());
      EXPECT_EQ(schedule.model_timestep(i, DType::kBF16),
                item["model_timesteps_bf16"][static_cast<size_t>(i)].get<float>());
    }
    ++cases;
  }
  EXPECT_GT(cases, 20u);
}

TEST(Scheduler, EulerStepsAreBitEqual) {
  const auto golden = SafetensorsFile::open(kGoldens / "scheduler/euler.safetensors");
  const std::unique_ptr<Backend> backend = make_backend("cpu");
  for (const std::string dtype : {"f32", "bf16"}) {
    Schedule schedule;
    schedule.sigmas = to_floats(golden->tensor(dtype + "_sigmas"));
    Tensor x = golden->tensor(dtype + "_start");
    for (int i = 0; i < schedule.steps(); ++i) {
      x = euler_step(*backend, schedule, i, x, golden->tensor(dtype + "_velocity" + std::to_string(i)));
      const Tensor expected = golden->tensor(dtype + "_latents" + std::to_string(i));
      ASSERT_EQ(x.dtype(), expected.dtype());
      EXPECT_EQ(to_floats(x), to_floats(expected)) << dtype << " step " << i;
    }
  }
}

TEST(Scheduler, OneStepIsRefusedWithAReason) {
  const SchedulerConfig config{
      .base_shift = 0.5, .max_shift = 0.9, .base_tokens = 256, .max_tokens = 8192, .shift_terminal = 0.02};
  try {
    make_schedule(config, 1, 64);
    FAIL() << "one step divides 0 by 0";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--steps 2"), std::string::npos) << error.what();
  }
}

TEST(Scheduler, OfAModelIsReadOnce) {
  const fs::path tiny = fs::path(LOCKSTEP_SOURCE_DIR) / "models/tiny",
                 folder = fs::temp_directory_path() / ("scheduler-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(tiny))
    if (entry.path().filename() != "scheduler") fs::create_symlink(entry.path(), folder / entry.path().filename());
  fs::copy(tiny / "scheduler", folder / "scheduler");
  const ModelFolder model = ModelFolder::open(folder);
  const double shift = model.scheduler().base_shift;
  fs::remove_all(folder);
  EXPECT_EQ(ModelFolder(model).scheduler().base_shift, shift);
}

}  // namespace
}  // namespace lockstep
