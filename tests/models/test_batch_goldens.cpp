// Two prompts of different length in one call of the DiT: padded text rows are masked keys.
#include <gtest/gtest.h>

#include "models/qwen_image/transformer.h"
#include "support/golden_recording.h"

namespace lockstep {
namespace {

using testing::CollectingTap;
using testing::GoldenRecording;
using testing::kF32Bound;
using testing::kGoldens;
using testing::relative_l2;

TEST(BatchGoldens, MaskedTextAgreesAtEveryTap) {
  const GoldenRecording golden(kGoldens / "batch/masked");
  const std::unique_ptr<Backend> backend = make_backend("reference");
  const Checkpoint checkpoint = Checkpoint::open(kGoldens / "t2i_f32/model/transformer");
  const nn::Weights weights(checkpoint, *backend, {});
  const models::QwenImageTransformer transformer(
      weights, models::read_qwen_image_config(kGoldens / "t2i_f32/model/transformer/config.json"));
  weights.finish("transformer");
  struct Case {
    std::string mask, output;
    std::vector<float> timesteps;
  };
  for (const auto& [mask_name, output, timesteps] :
       {Case{"prompt_embeds_mask", "transformer.proj_out@step0@cond", {0.7f, 0.7f}},
        Case{"odd_mask", "odd_noise_pred", {0.7f, 0.2f}}}) {
    const Tensor mask = golden.tensor(mask_name).to(DType::kBool), text = golden.tensor("prompt_embeds");
    const models::Rope rope = models::make_rope(transformer.config(), {{1, 4, 3}}, text.dim(1));
    CollectingTap tap;
    const nn::Execution execution{.backend = *backend, .tap = &tap, .step = 0, .pass = "cond"};
    const Tensor out = transformer.forward({.latents = golden.tensor("hidden_states"),
                                            .text = text,
                                            .timesteps = timesteps,
                                            .text_mask = &mask,
                                            .rope = &rope},
                                           nn::Ctx(execution, "transformer"));
    EXPECT_LE(relative_l2(golden.tensor(output), out), kF32Bound) << mask_name;
    if (mask_name == "odd_mask") continue;
    size_t compared = 0;
    for (const TensorKey& key : tap.order) {
      if (!golden.has(key)) continue;
      ++compared;
      EXPECT_LE(relative_l2(golden.tensor(key), tap.tensors.at(key)), kF32Bound) << to_string(key);
    }
    EXPECT_GT(compared, 20u);
  }
}

}  // namespace
}  // namespace lockstep
