// The tiny pipelines on MLX: every tap against the reference backend, pictures against the CPU's. Skipped where the MLX
// part was not built.
#include <gtest/gtest.h>

#include "backend/mlx/report.h"
#include "io/image.h"
#include "io/picture_modes.h"
#include "pipeline/generate.h"
#include "support/golden_recording.h"

namespace lockstep {
namespace {

using testing::CollectingTap;
using testing::GoldenRecording;
using testing::kF32Bound;
using testing::kGoldens;
using testing::relative_l2;

struct TinyPipeline {
  const char *name, *model, *recording, *picture;
  DType dtype;
};

class MlxPipeline : public ::testing::TestWithParam<TinyPipeline> {
 protected:
  void SetUp() override {
    if (!mlx_report().usable) GTEST_SKIP() << mlx_report().why;
  }

  static GenerateRequest request() {
    const Json settings = GoldenRecording(kGoldens / GetParam().recording).settings();
    GenerateRequest request;
    request.prompt = settings["prompt"];
    if (!settings["negative_prompt"].is_null())
      request.negative_prompt = settings["negative_prompt"].get<std::string>();
    request.width = settings["width"].is_null() ? 0 : settings["width"].get<int>();
    request.height = settings["height"].is_null() ? 0 : settings["height"].get<int>();
    request.steps = settings["steps"];
    request.guidance = settings["guidance"];
    request.seed = settings["seed"];
    request.resolution = settings.value("resolution", 0);
    request.condition_resolution = settings.value("condition_resolution", 0);
    if (settings.contains("pictures"))
      for (const Json& name : settings["pictures"])
        request.pictures.push_back(
            rgb_over_white(read_image(kGoldens / GetParam().picture / name.get<std::string>()).pixels));
    return request;
  }

  static Tensor run(const char* device, DType dtype, Tap* tap) {
    const std::unique_ptr<Backend> backend = make_backend(device);
    GenerateSettings settings;
    settings.dtype = dtype;
    settings.tap = tap;
    return generate(ModelFolder::open(kGoldens / GetParam().model), *backend, settings, {request()})[0].pixels;
  }

  static int levels_between(const Tensor& a, const Tensor& b) {
    const std::vector<double> x = to_doubles(a), y = to_doubles(b);
    double most = 0;
    for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::fabs(x[i] - y[i]));
    return static_cast<int>(most);
  }
};

// In f32 each tap agrees with the reference. In bf16 no two orders of rounding give the same numbers: there each stage
// is as far from the exact one as the reference in bf16 is, pooled over its steps as in test_goldens.cpp.
TEST_P(MlxPipeline, EveryTapAgreesWithTheReference) {
  CollectingTap exact, ours;
  const Tensor expected = run("reference", DType::kF32, &exact), got = run("mlx", GetParam().dtype, &ours);
  ASSERT_EQ(exact.order.size(), ours.order.size());
  ASSERT_GT(exact.order.size(), 200u);
  if (GetParam().dtype == DType::kF32) {
    for (const TensorKey& key : exact.order) {
      ASSERT_TRUE(ours.tensors.count(key)) << to_string(key);
      if (key.name == "image" || key.name == "images") continue;
      ASSERT_LE(relative_l2(exact.tensors.at(key), ours.tensors.at(key)), kF32Bound)
          << "first divergence: " << to_string(key);
    }
    EXPECT_LE(levels_between(expected, got), 1);
    EXPECT_LE(levels_between(run("cpu", DType::kF32, nullptr), run("mlx", DType::kF32, nullptr)), 1);  // nobody listens
    return;
  }
  CollectingTap rounded;
  run("reference", GetParam().dtype, &rounded);
  std::map<std::string, std::pair<double, double>> stages;
  double our_log = 0, reference_log = 0;
  for (const TensorKey& key : exact.order) {
    if (key.name == "image" || key.name == "images") continue;
    const Tensor& truth = exact.tensors.at(key);
    const double ours_off = relative_l2(truth, ours.tensors.at(key));
    const double reference_off = relative_l2(truth, rounded.tensors.at(key));
    if (reference_off == 0) {
      EXPECT_LE(ours_off, kF32Bound) << to_string(key);
      continue;
    }
    our_log += std::log(std::max(ours_off, 1e-12));
    reference_log += std::log(reference_off);
    stages[key.name].first += ours_off * ours_off;
    stages[key.name].second += reference_off * reference_off;
  }
  ASSERT_GT(stages.size(), 50u);
  for (const auto& [name, squares] : stages)
    EXPECT_LE(std::sqrt(squares.first), 1.1 * std::sqrt(squares.second)) << name;
  EXPECT_LE(our_log, reference_log + 0.01 * static_cast<double>(exact.order.size()));
}

INSTANTIATE_TEST_SUITE_P(
    All, MlxPipeline,
    ::testing::Values(TinyPipeline{"draw_f32", "t2i_f32/model", "t2i_f32/recording", "", DType::kF32},
                      TinyPipeline{"draw_bf16", "t2i_bf16/model", "t2i_bf16/recording_f32", "", DType::kBF16},
                      TinyPipeline{"edit_f32", "edit/model", "edit/two", "edit", DType::kF32},
                      TinyPipeline{"edit_bf16", "edit/model", "edit/two", "edit", DType::kBF16}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep
