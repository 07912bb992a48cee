// The text encoder's stage: prompts, with or without pictures, become the rows that the transformer reads.
#pragma once
#include <functional>

#include "models/qwen2_5_vl/vision_tower.h"
#include "pipeline/stages.h"
#include "text/prompt_template.h"

namespace lockstep {

struct Embeddings {
  Tensor cond, uncond;  // [1, T, D]; uncond undefined without guidance
};

// What the vision tower is shown: all pictures of a request.
struct VisionInput {
  Tensor patches;  // f32 [n, patch values]
  std::vector<models::PatchGrid> grids;
};

// The rows of a prompt behind the template's own, which the pipeline drops; `most` of them, 0 for all.
Tensor embed_prompt(const Stages& stages, const models::TextModel& encoder, const PromptTokens& tokens, int most,
                    std::string_view pass, const models::TextModel::Input& input = {});

// Embeds prompt and negative prompt of every request, once where neighbours are the same and nobody listens.
using EmbedPrompt =
    std::function<Tensor(const GenerateRequest& request, const std::string& prompt, std::string_view pass)>;
std::vector<Embeddings> embed_all(const Stages& stages, const std::vector<GenerateRequest>& requests,
                                  const EmbedPrompt& embed);

// Text alone.
std::vector<Embeddings> encode_prompts(const Stages& stages, const std::vector<GenerateRequest>& requests);

// Text and pictures; `inputs` has one entry a request. Numbered: "Picture 1: ", ... stand before the pictures.
std::vector<Embeddings> encode_edit_prompts(const Stages& stages, const std::vector<GenerateRequest>& requests,
                                            const std::vector<VisionInput>& inputs, bool numbered);

}  // namespace lockstep
