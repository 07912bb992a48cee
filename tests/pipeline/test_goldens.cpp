// The engine against what the official code computed: every tap that both sides have.
#include <gtest/gtest.h>

#include "pipeline/generate.h"
#include "pipeline/golden_recording.h"

namespace lockstep {
namespace {

using testing::CollectingTap;
using testing::GoldenRecording;
using testing::relative_l2;

const fs::path kGoldens = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/goldens";
constexpr double kF32Bound = 1e-5;  // relative L2, at every stage

GenerateRequest request_from(const Json& settings) {
  GenerateRequest request;
  request.prompt = settings["prompt"];
  if (!settings["negative_prompt"].is_null()) request.negative_prompt = settings["negative_prompt"].get<std::string>();
  request.width = settings["width"];
  request.height = settings["height"];
  request.steps = settings["steps"];
  request.guidance = settings["guidance"];
  request.seed = settings["seed"];
  return request;
}

CollectingTap run_golden(const fs::path& model, const Json& settings, const std::string& backend_name, DType dtype) {
  CollectingTap tap;
  const std::unique_ptr<Backend> backend = make_backend(backend_name);
  GenerateSettings run;
  run.dtype = dtype;
  run.tap = &tap;
  generate(ModelFolder::open(model), *backend, run, {request_from(settings)});
  return tap;
}

void expect_every_tap_agrees(const std::string& backend_name) {
  const GoldenRecording golden(kGoldens / "t2i_f32/recording");
  const CollectingTap ours = run_golden(kGoldens / "t2i_f32/model", golden.settings(), backend_name, DType::kF32);
  size_t compared = 0;
  for (const TensorKey& key : ours.order) {
    if (!golden.has(key)) continue;
    const Tensor expected = golden.tensor(key), &got = ours.tensors.at(key);
    ASSERT_EQ(expected.shape(), got.shape()) << to_string(key);
    ++compared;
    if (key.name == "image") {
      const std::vector<double> a = to_doubles(expected), b = to_doubles(got);
      for (size_t i = 0; i < a.size(); ++i) ASSERT_LE(std::fabs(a[i] - b[i]), 1) << "pixel " << i;
      continue;
    }
    ASSERT_LE(relative_l2(expected, got), kF32Bound) << "first divergence: " << to_string(key);
  }
  EXPECT_GT(compared, 200u) << "most of the recording has to be paired, or nothing is proven";
}

TEST(Goldens, ReferenceBackendAgreesWithTheOfficialPipelineAtEveryTap) {
  expect_every_tap_agrees("reference");
}

}  // namespace
}  // namespace lockstep
