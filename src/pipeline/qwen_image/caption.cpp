#include "pipeline/qwen_image/caption.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/interrupt.h"
#include "ops/elementwise.h"
#include "tensor/rehearsal.h"

namespace lockstep {

using nn::Ctx;
using nn::Execution;

TokenChoice read_token_choice(const fs::path& text_encoder_folder) {
  TokenChoice choice;
  const fs::path path = text_encoder_folder / "generation_config.json";
  const bool own = fs::exists(path);
  const models::ConfigReader reader = models::read_config(own ? path : text_encoder_folder / "config.json", "");
  if (own) {
    choice.sample = reader.boolean_or("do_sample", false);
    choice.temperature = reader.number_or("temperature", 1);
    choice.top_p = reader.number_or("top_p", 1);
    choice.top_k = reader.integer_or("top_k", 50, 0, 1 << 24);
    choice.repetition_penalty = reader.number_or("repetition_penalty", 1);
    if (!(choice.temperature > 0)) reader.refuse("temperature", "a number above 0");
    if (!(choice.repetition_penalty > 0)) reader.refuse("repetition_penalty", "a number above 0");
  }
  const models::ConfigReader ends =
      own || !reader.has("text_config") || reader.has("eos_token_id") ? reader : reader.section("text_config");
  if (ends.has("eos_token_id")) choice.ends = ends.integers_or_one("eos_token_id");
  return choice;
}

int64_t choose_token(std::span<const float> scores, std::span<const int64_t> seen, const TokenChoice& choice,
                     TorchGenerator& generator) {
  std::vector<float> adjusted(scores.begin(), scores.end());
  if (choice.repetition_penalty != 1) {
    const auto penalty = static_cast<float>(choice.repetition_penalty);
    for (const int64_t id : seen) {
      const float score = scores[static_cast<size_t>(id)];
      adjusted[static_cast<size_t>(id)] = score < 0 ? score * penalty : score / penalty;
    }
  }
  const auto best = std::max_element(adjusted.begin(), adjusted.end()) - adjusted.begin();
  if (!choice.sample || choice.top_k == 1) return best;
  // The likeliest top_k of them, cut behind the first that reaches top_p together.
  std::vector<int64_t> order(adjusted.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int64_t id) { return adjusted[static_cast<size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return at(a) > at(b); });
  if (choice.top_k > 0 && static_cast<size_t>(choice.top_k) < order.size())
    order.resize(static_cast<size_t>(choice.top_k));
  std::vector<double> likely;
  for (const int64_t id : order)
    likely.push_back(std::exp((static_cast<double>(at(id)) - static_cast<double>(at(best))) / choice.temperature));
  const double all = std::accumulate(likely.begin(), likely.end(), 0.0);
  size_t kept = 0;
  double sum = 0;
  while (kept < likely.size() && (kept == 0 || sum < choice.top_p * all)) sum += likely[kept++];
  double point = generator.next_uniform() * sum;
  for (size_t i = 0; i < kept; ++i)
    if ((point -= likely[i]) < 0) return order[i];
  return order[kept - 1];
}

Captioner::Captioner(const Stages& stages)
    : stages_(stages),
      tokenizer_(stages.tokenizer()),
      processor_(stages.model().image_processor()),
      choice_(read_token_choice(stages.model().path() / "text_encoder")),
      model_(stages.text_encoder(models::TextModel::Head::kLogits)),
      tower_(stages.vision_tower()) {}

std::string Captioner::describe(const Tensor& rgb, const GenerateRequest& request) const {
  const VisionInput input = processor_.patches({rgb});
  const int64_t image_token = tower_->config().image_token;
  std::vector<int64_t> ids = tokenize_caption_request(*tokenizer_, request.english_caption,
                                                      input.grids[0].rows(tower_->config()), image_token);
  const size_t asked = ids.size();
  const Execution stage{.backend = stages_.backend(), .dtype = stages_.dtype()};  // not offered: a pass for each token
  const Ctx ctx(stage, "text_encoder");
  TokenChoice choice = choice_;
  if (request.greedy_caption) choice.sample = false, choice.repetition_penalty = 1;
  TorchGenerator generator(request.seed);

  models::KeyValueCache cache =
      model_->make_cache(stages_.backend(), static_cast<int64_t>(asked) + kMostCaptionTokens, stages_.dtype());
  const std::vector<models::TextPosition> places = models::image_positions(ids, input.grids, tower_->config());
  int64_t next_place = 0;
  for (const models::TextPosition& place : places)
    next_place = std::max(next_place, *std::max_element(place.begin(), place.end()) + 1);
  Tensor hidden = model_->forward({.ids = ids,
                                   .image_rows = tower_->forward(input.patches, input.grids, ctx),
                                   .image_token = image_token,
                                   .positions = places,
                                   .cache = &cache},
                                  ctx);
  const int most = rehearsing() ? 2 : kMostCaptionTokens;
  stages_.report("caption", 0, most);
  for (int written = 0; written < most; ++written) {
    check_interrupt("edit");
    const Tensor last = ops::contiguous(stages_.backend(), hidden.slice(1, hidden.dim(1) - 1, hidden.dim(1)));
    const Tensor scores = model_->logits(last, ctx).host().to(DType::kF32);  // [1, 1, V]
    const std::span<const float> values(scores.data<float>(), static_cast<size_t>(scores.numel()));
    const int64_t token = rehearsing() ? 0 : choose_token(values, ids, choice, generator);
    ids.push_back(token);
    stages_.report("caption", written + 1, most);
    if (!rehearsing() && std::find(choice.ends.begin(), choice.ends.end(), token) != choice.ends.end()) break;
    const models::TextPosition place{next_place, next_place, next_place};
    ++next_place;
    hidden = model_->forward({.ids = {&token, 1}, .positions = {&place, 1}, .cache = &cache}, ctx);
  }
  if (rehearsing()) return " ";
  const std::vector<int32_t> answer(ids.begin() + static_cast<std::ptrdiff_t>(asked), ids.end());
  return tokenizer_->decode_written(answer);
}

}  // namespace lockstep
