// Prompts that were drawn lately need no text encoder, and their pictures have the same bits.
#include <gtest/gtest.h>

#include "pipeline/generate.h"
#include "studio/kept_prompts.h"

namespace lockstep {
namespace {

Tensor rows_of(int64_t bytes) {
  return Tensor::zeros(DType::kU8, {1, bytes, 1});
}

TEST(KeptPrompts, TheOnesUsedLastStayWithinTheBounds) {
  KeptPrompts kept;
  for (size_t i = 0; i < KeptPrompts::kMost; ++i) kept.keep("a" + std::to_string(i), rows_of(10));
  EXPECT_TRUE(kept.find("a0").defined());  // used, so it is not the oldest any more
  kept.keep("b", rows_of(10));
  EXPECT_EQ(kept.size(), KeptPrompts::kMost);
  EXPECT_TRUE(kept.find("a0").defined());
  EXPECT_FALSE(kept.find("a1").defined());

  const auto third = static_cast<int64_t>(KeptPrompts::kMostBytes / 3);
  for (const char* key : {"c", "d", "e", "f"}) kept.keep(key, rows_of(third));
  EXPECT_LE(kept.bytes(), KeptPrompts::kMostBytes);
  EXPECT_TRUE(kept.find("f").defined());
  EXPECT_FALSE(kept.find("c").defined());
  kept.keep("too large", rows_of(static_cast<int64_t>(KeptPrompts::kMostBytes) + 1));
  EXPECT_FALSE(kept.find("too large").defined());
}

TEST(KeptPrompts, WhatIsUnusedForLongIsForgotten) {
  KeptPrompts kept;
  kept.keep("old", rows_of(10));
  const auto between = KeptPrompts::Clock::now() + std::chrono::nanoseconds(1);
  while (KeptPrompts::Clock::now() < between) continue;
  kept.keep("new", rows_of(10));
  kept.forget_unused(between);
  EXPECT_FALSE(kept.find("old").defined());
  EXPECT_TRUE(kept.find("new").defined());
  kept.forget_unused(KeptPrompts::Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(kept.bytes(), 0u);
}

TEST(PromptsOfRun, EachClientAndEachModelHasItsOwn) {
  KeptPrompts kept;
  PromptsOfRun run(kept, "tiny/f32", {"anna", "ben"});
  run.keep(0, "a red circle", rows_of(10));
  EXPECT_TRUE(run.find(0, "a red circle").defined());
  EXPECT_FALSE(run.find(1, "a red circle").defined());
  EXPECT_FALSE(PromptsOfRun(kept, "tiny/bf16", {"anna"}).find(0, "a red circle").defined());
  run.keep(0, "xb", rows_of(10));
  EXPECT_FALSE(PromptsOfRun(kept, "tiny/f32", {"annax"}).find(0, "b").defined()) << "names and prompts run together";
}

// Counts what is asked for; keeps nothing.
class CountingShelf : public PartShelf {
 public:
  Part part(const std::string& name, const std::function<Part()>& load) override {
    ++asked[name];
    return load();
  }
  std::map<std::string, int> asked;
};

TEST(PromptsOfRun, ASecondPictureNeedsNoTextEncoderAndIsTheSame) {
  const ModelFolder model = ModelFolder::open(fs::path(LOCKSTEP_SOURCE_DIR) / "models/tiny");
  const std::unique_ptr<Backend> backend = make_backend("cpu", 1);
  GenerateRequest request;
  request.prompt = "a red circle";
  request.negative_prompt = "a blue square";
  request.width = request.height = 64;
  request.steps = 2;
  const auto drawn = [&](const GenerateRequest& one, KeptPrompts* kept, int encoders) {
    CountingShelf shelf;
    GenerateSettings settings;
    settings.shelf = &shelf;
    std::optional<PromptsOfRun> prompts;
    if (kept) settings.prompts = &prompts.emplace(*kept, "tiny", std::vector<std::string>{"anna"});
    const Tensor pixels = generate(model, *backend, settings, {one})[0].pixels;
    EXPECT_EQ(shelf.asked["text_encoder"], encoders);
    const auto bytes = pixels.contiguous_bytes();
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  KeptPrompts kept;
  const auto plain = drawn(request, nullptr, 1);
  EXPECT_EQ(drawn(request, &kept, 1), plain);
  EXPECT_EQ(kept.size(), 2u);
  EXPECT_EQ(drawn(request, &kept, 0), plain);
  GenerateRequest other = request;
  other.prompt = "two green stars";
  const auto alone = drawn(other, nullptr, 1);
  EXPECT_NE(alone, plain);
  EXPECT_EQ(drawn(other, &kept, 1), alone) << "its negative prompt was kept, its prompt was not";
  other.max_prompt_tokens = 2;
  EXPECT_EQ(drawn(other, &kept, 1), drawn(other, nullptr, 1)) << "cut, it is another prompt";
}

}  // namespace
}  // namespace lockstep
