// Guidance in one batch gives the picture of two passes, whatever the prompts' lengths and the backend.
#include <gtest/gtest.h>

#include "pipeline/generate.h"

namespace lockstep::testing {
namespace {

int most_levels_apart(const Tensor& a, const Tensor& b) {
  int most = 0;
  const uint8_t *x = a.data<uint8_t>(), *y = b.data<uint8_t>();
  for (int64_t i = 0; i < a.numel(); ++i) most = std::max(most, std::abs(int{x[i]} - int{y[i]}));
  return most;
}

TEST(Guidance, OneBatchDrawsThePictureOfTwoPasses) {
  const fs::path folder = fs::path(LOCKSTEP_SOURCE_DIR) / "models/tiny";
  if (!fs::exists(folder / "model_index.json")) GTEST_SKIP() << "no model in " << folder;
  const ModelFolder model = ModelFolder::open(folder);
  for (const char* negative : {" ", "a green star above a grey ring, and more words than the prompt has"}) {
    GenerateRequest request;
    request.prompt = "a red circle left of a blue square";
    request.negative_prompt = negative;
    request.width = 96;
    request.height = 64;
    request.steps = 4;
    request.guidance = 3;
    GenerateSettings settings;
    settings.guidance = GuidanceRun::kPasses;
    const auto backend = make_backend("cpu");
    const Tensor passes = generate(model, *backend, settings, {request})[0].pixels;
    settings.guidance = GuidanceRun::kBatch;
    const Tensor batch = generate(model, *backend, settings, {request})[0].pixels;
    EXPECT_LE(most_levels_apart(passes, batch), 1) << '"' << negative << '"';
  }
}

TEST(Guidance, TheShorterPromptIsFilledAndMasked) {
  const auto backend = make_backend("reference");
  const Tensor cond = Tensor::from<float>({1, 2, 2}, {1, 2, 3, 4}), uncond = Tensor::from<float>({1, 1, 2}, {5, 6});
  const PaddedText both = pad_together(*backend, cond, uncond);
  ASSERT_EQ(both.text.shape(), (Shape{2, 2, 2}));
  const std::vector<float> expected{1, 2, 3, 4, 5, 6, 0, 0};
  EXPECT_EQ(std::vector<float>(both.text.data<float>(), both.text.data<float>() + 8), expected);
  const std::vector<bool> mask{true, true, true, false};
  EXPECT_EQ(std::vector<bool>(both.mask.data<bool>(), both.mask.data<bool>() + 4), mask);
}

}  // namespace
}  // namespace lockstep::testing
