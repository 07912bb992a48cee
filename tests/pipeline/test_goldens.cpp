// The engine against what the official code computed: every tap that both sides have.
#include <gtest/gtest.h>

#include "pipeline/generate.h"
#include "support/golden_recording.h"

namespace lockstep {
namespace {

using testing::CollectingTap;
using testing::GoldenRecording;
using testing::relative_l2;

using testing::kF32Bound;
using testing::kGoldens;

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

TEST(Goldens, CpuBackendAgreesWithTheOfficialPipelineAtEveryTap) {
  expect_every_tap_agrees("cpu");
}

// bf16: at every stage our error against the official f32 is at most 1.1 times the official bf16's own. A stage is a
// name: its steps and passes are samples of it, pooled, because a single tensor of a few hundred values is decided by
// luck. (The official code on another processor passes 1.1 of its own error in one tensor of a hundred.)
void expect_bf16_no_worse_than_official(const std::string& backend_name) {
  const GoldenRecording exact(kGoldens / "t2i_bf16/recording_f32"), official(kGoldens / "t2i_bf16/recording_bf16");
  const CollectingTap ours = run_golden(kGoldens / "t2i_bf16/model", official.settings(), backend_name, DType::kBF16);
  struct Squares {
    double ours = 0, official = 0;
  };
  std::map<std::string, Squares> stages;
  double our_log = 0, official_log = 0;
  size_t compared = 0;
  for (const TensorKey& key : ours.order) {
    if (!exact.has(key) || !official.has(key) || key.name == "image") continue;
    const double our_error = relative_l2(exact.tensor(key), ours.tensors.at(key));
    const double official_error = relative_l2(exact.tensor(key), official.tensor(key));
    if (official_error == 0) {
      EXPECT_LE(our_error, kF32Bound) << to_string(key);  // computed in f32 by both
      continue;
    }
    ++compared;
    our_log += std::log(std::max(our_error, 1e-12));
    official_log += std::log(official_error);
    stages[key.name].ours += our_error * our_error;
    stages[key.name].official += official_error * official_error;
  }
  ASSERT_GT(compared, 150u);
  for (const auto& [name, squares] : stages)
    EXPECT_LE(std::sqrt(squares.ours), 1.1 * std::sqrt(squares.official)) << name;
  EXPECT_LE(our_log, official_log) << "over all stages together we are the more exact";
}

TEST(Goldens, ReferenceBackendInBf16IsNoWorseThanTheOfficialBf16) {
  expect_bf16_no_worse_than_official("reference");
}

TEST(Goldens, CpuBackendInBf16IsNoWorseThanTheOfficialBf16) {
  expect_bf16_no_worse_than_official("cpu");
}

}  // namespace
}  // namespace lockstep
