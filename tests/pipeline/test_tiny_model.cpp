// The embedded model draws what held-out prompts say. LOCKSTEP_ALL_PROMPTS=1 judges all of them, not the fixed forty,
// and LOCKSTEP_FEW_PROMPTS=N the first N of the forty, which come in fives that hold every kind. To choose a model or
// its settings, LOCKSTEP_PROMPTS and LOCKSTEP_MODEL name another set of prompts (training/grammar.py writes a
// development set, so that the evaluation set stays unseen) and another folder; LOCKSTEP_PICTURES names a folder of
// pictures drawn elsewhere to judge instead, <seed>.png.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "io/image.h"
#include "pipeline/generate.h"
#include "support/scene_checker.h"

namespace lockstep::testing {
namespace {

constexpr std::array<double, 6> kBars{0.97, 0.97, 0.97, 0.92, 0.85, 0.80};  // in the order of kMeasures

// Prompts come in fives of single, pair, pair, count, word: every fifth five holds all kinds in their proportion.
bool in_suite(size_t index) {
  return index / 5 % 5 == 0;
}

TEST(TinyModel, DrawsWhatHeldOutPromptsSay) {
  const fs::path source = LOCKSTEP_SOURCE_DIR;
  const char* other_model = std::getenv("LOCKSTEP_MODEL");
  const char* other_prompts = std::getenv("LOCKSTEP_PROMPTS");
  const fs::path folder = other_model ? fs::path(other_model) : source / "models/tiny";
  if (!fs::exists(folder / "model_index.json")) GTEST_SKIP() << "no model in " << folder;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "forty pictures under a sanitizer take minutes; the same code runs there on the goldens";
#endif
  const bool all = other_prompts || std::getenv("LOCKSTEP_ALL_PROMPTS");
  const char* few = std::getenv("LOCKSTEP_FEW_PROMPTS");
  const size_t most = few ? std::stoul(few) : 200;
  const char* pictures = std::getenv("LOCKSTEP_KEEP_PICTURES");  // a folder for the failing ones

  const Json file = read_json(other_prompts ? fs::path(other_prompts) : source / "training/eval_prompts.json");
  const SceneDefinitions definitions(file);
  const SceneChecker checker(definitions);
  const ModelFolder model = ModelFolder::open(folder);
  const ModelDefaults& defaults = model.defaults();
  std::vector<Expected> expected;
  std::vector<GenerateRequest> requests;
  for (size_t i = 0; i < file.at("prompts").size(); ++i) {
    if ((!all && !in_suite(i)) || requests.size() == most) continue;
    expected.push_back(expected_from_json(file.at("prompts")[i]));
    GenerateRequest request;
    request.prompt = expected.back().prompt;
    request.negative_prompt = defaults.negative_prompt;
    request.width = defaults.width;
    request.height = defaults.height;
    request.steps = defaults.steps;
    request.guidance = defaults.guidance;
    request.seed = expected.back().seed;
    requests.push_back(std::move(request));
  }
  ASSERT_EQ(requests.size(), std::min(most, other_prompts ? file.at("prompts").size() : all ? 200u : 40u));
  std::vector<GeneratedImage> images;
  if (const char* drawn = std::getenv("LOCKSTEP_PICTURES")) {
    for (const Expected& e : expected)
      images.emplace_back().pixels = read_image(fs::path(drawn) / fmt::format("{}.png", e.seed)).pixels;
  } else {
    images = generate(model, *make_backend("cpu"), {}, requests);
  }

  std::array<int, kMeasures.size()> right{}, of{};
  for (size_t i = 0; i < images.size(); ++i) {
    const Verdict verdict = checker.judge(images[i].pixels, expected[i]);
    std::string wrong;
    for (size_t m = 0; m < kMeasures.size(); ++m)
      if (const std::optional<bool> value = verdict.*kMeasures[m].value) {
        ++of[m];
        right[m] += *value;
        if (!*value) wrong += std::string(wrong.empty() ? "" : ", ") + kMeasures[m].name;
      }
    if (wrong.empty()) continue;
    fmt::print("{} wrong: \"{}\" (seed {}): sees {}\n", wrong, expected[i].prompt, expected[i].seed,
               checker.describe(images[i].pixels, expected[i]));
    if (pictures) write_image(fs::path(pictures) / fmt::format("{}.png", expected[i].seed), {images[i].pixels, {}});
  }
  for (size_t m = 0; m < kMeasures.size(); ++m) {
    // of the forty, one picture more than the bar allows is no evidence against the model; of all two hundred it is
    const double share = (1 - kBars[m]) * of[m] + 1e-9;
    const int allowed = static_cast<int>(all ? std::floor(share) : std::ceil(share));
    fmt::print("{:<12} {:3d} of {:3d}  {:5.1f} %  bar {:.0f} %\n", kMeasures[m].name, right[m], of[m],
               100.0 * right[m] / of[m], 100 * kBars[m]);
    ASSERT_GT(of[m], 0) << kMeasures[m].name;
    EXPECT_LE(of[m] - right[m], allowed) << kMeasures[m].name;
  }
}

}  // namespace
}  // namespace lockstep::testing
