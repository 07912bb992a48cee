#include "pipeline/text_stage.h"

#include "base/error.h"
#include "base/interrupt.h"
#include "ops/elementwise.h"

namespace lockstep {

using nn::Ctx;
using nn::Execution;

Tensor embed_prompt(const Stages& stages, const models::TextModel& encoder, const PromptTokens& tokens, int most,
                    std::string_view pass, const models::TextModel::Input& input) {
  const Execution stage = stages.execution(-1, pass);
  models::TextModel::Input whole = input;
  whole.ids = tokens.ids;
  const Tensor hidden = encoder.forward(whole, Ctx(stage, "text_encoder"));  // [1, S, D]
  const int64_t end = most ? std::min<int64_t>(hidden.dim(1), tokens.drop + most) : hidden.dim(1);
  if (end <= tokens.drop)
    fail(Code::kBadInput, "encode", "the prompt's template has fewer tokens than the pipeline drops",
         {.expected = "more than " + std::to_string(tokens.drop), .got = std::to_string(hidden.dim(1))});
  return ops::contiguous(stages.backend(), hidden.slice(1, tokens.drop, end));
}

namespace {

bool same_text(const GenerateRequest& a, const GenerateRequest& b) {
  bool same = a.prompt == b.prompt && a.negative_prompt == b.negative_prompt && a.guided() == b.guided() &&
              a.pictures.size() == b.pictures.size() && a.condition_resolution == b.condition_resolution &&
              a.resolution == b.resolution && a.positions == b.positions;
  for (size_t i = 0; same && i < a.pictures.size(); ++i)
    same = a.pictures[i].strided_data() == b.pictures[i].strided_data();
  return same;
}

}  // namespace

std::vector<Embeddings> embed_all(const Stages& stages, const std::vector<GenerateRequest>& requests,
                                  const EmbedPrompt& embed) {
  stages.report("text encoder", 0, static_cast<int64_t>(requests.size()));
  std::vector<Embeddings> all;
  for (const GenerateRequest& request : requests) {
    check_interrupt("generate");
    Embeddings text;
    if (!all.empty() && same_text(request, requests[all.size() - 1]) && !stages.listening()) {
      text = all.back();
    } else {
      text.cond = stages.tap("prompt_embeds", embed(request, request.prompt, "cond"));
      if (request.guided())
        text.uncond = stages.tap("negative_prompt_embeds", embed(request, *request.negative_prompt, "uncond"));
    }
    all.push_back(std::move(text));
    stages.report("text encoder", static_cast<int64_t>(all.size()), static_cast<int64_t>(requests.size()));
  }
  return all;
}

namespace {

std::string kept_under(const GenerateRequest& request, const std::string& prompt) {
  return std::to_string(request.max_prompt_tokens) + "|" + prompt;
}

// What is kept of each request's prompts; held from here on, whatever else the shelf takes in meanwhile.
std::vector<Embeddings> kept_prompts(const Stages& stages, const std::vector<GenerateRequest>& requests) {
  std::vector<Embeddings> kept(requests.size());
  PromptShelf* shelf = stages.listening() ? nullptr : stages.settings().prompts;
  for (size_t i = 0; shelf && i < requests.size(); ++i) {
    kept[i].cond = shelf->find(i, kept_under(requests[i], requests[i].prompt));
    if (requests[i].guided()) kept[i].uncond = shelf->find(i, kept_under(requests[i], *requests[i].negative_prompt));
  }
  return kept;
}

}  // namespace

std::vector<Embeddings> encode_prompts(const Stages& stages, const std::vector<GenerateRequest>& requests) {
  const std::vector<Embeddings> kept = kept_prompts(stages, requests);
  bool all_kept = true;
  for (size_t i = 0; i < requests.size(); ++i)
    all_kept &= kept[i].cond.defined() && (kept[i].uncond.defined() || !requests[i].guided());
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const models::TextModel> encoder;
  if (!all_kept) {
    tokenizer = stages.tokenizer();
    encoder = stages.text_encoder();
  }
  return embed_all(
      stages, requests, [&](const GenerateRequest& request, const std::string& prompt, std::string_view pass) {
        const auto i = static_cast<size_t>(&request - requests.data());
        if (const Tensor& rows = pass == "cond" ? kept[i].cond : kept[i].uncond; rows.defined()) return rows;
        const Tensor rows =
            embed_prompt(stages, *encoder, tokenize_prompt(*tokenizer, prompt), request.max_prompt_tokens, pass);
        if (stages.settings().prompts) stages.settings().prompts->keep(i, kept_under(request, prompt), rows);
        return rows;
      });
}

std::vector<Embeddings> encode_edit_prompts(const Stages& stages, const std::vector<GenerateRequest>& requests,
                                            const std::vector<VisionInput>& inputs, bool numbered) {
  const auto tokenizer = stages.tokenizer();
  const auto encoder = stages.text_encoder();
  const auto kept_tower = stages.vision_tower();
  const models::VisionTower& tower = *kept_tower;
  Tensor rows;  // of the pictures of a request: the same for prompt and negative prompt
  return embed_all(
      stages, requests, [&](const GenerateRequest& request, const std::string& prompt, std::string_view pass) {
        const VisionInput& input = inputs[static_cast<size_t>(&request - requests.data())];
        if (pass == "cond" || stages.listening()) {
          const Execution stage = stages.execution(-1, pass);
          rows = tower.forward(input.patches, input.grids, Ctx(stage, "text_encoder"));
        }
        std::vector<int64_t> counts;
        for (const models::PatchGrid& grid : input.grids) counts.push_back(grid.rows(tower.config()));
        const PromptTokens tokens =
            tokenize_edit_prompt(*tokenizer, prompt, counts, numbered, tower.config().image_token);
        std::vector<models::TextPosition> positions;
        if (request.positions == ImagePositions::kMrope)
          positions = models::image_positions(tokens.ids, input.grids, tower.config());
        return embed_prompt(
            stages, *encoder, tokens, 0, pass,
            {.ids = {}, .image_rows = rows, .image_token = tower.config().image_token, .positions = positions});
      });
}

}  // namespace lockstep
