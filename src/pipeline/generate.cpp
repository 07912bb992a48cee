#include "pipeline/generate.h"

#include "base/error.h"
#include "base/interrupt.h"
#include "ops/elementwise.h"
#include "pipeline/guidance.h"
#include "pipeline/latents.h"
#include "pipeline/noise.h"
#include "text/prompt_template.h"

namespace lockstep {
namespace {

using nn::Ctx;
using nn::Execution;

struct Embeddings {
  Tensor cond, uncond;  // [1, T, D]; uncond undefined without guidance
};

class Run {
 public:
  Run(const ModelFolder& model, Backend& backend, const GenerateSettings& settings)
      : model_(model), backend_(backend), settings_(settings) {}

  std::vector<Embeddings> encode(const std::vector<GenerateRequest>& requests) const;
  std::vector<Tensor> denoise(const std::vector<GenerateRequest>& requests, const std::vector<Embeddings>& embeddings,
                              const SchedulerConfig& scheduler) const;  // packed
  std::vector<GeneratedImage> decode(const std::vector<GenerateRequest>& requests,
                                     const std::vector<Tensor>& latents) const;

 private:
  Execution execution(int step = -1, std::string_view pass = {}) const {
    return {.backend = backend_, .dtype = settings_.dtype, .tap = settings_.tap, .step = step, .pass = pass};
  }
  Tensor tap(std::string_view name, Tensor tensor, int step = -1, std::string_view pass = {}) const {
    const Execution stage = execution(step, pass);
    return Ctx(stage, name).tap(std::move(tensor));
  }
  nn::LoadProgress loading(const char* stage) const {
    constexpr int64_t kMegabyte = 1'000'000;
    return [this, stage](int64_t done, int64_t total) {
      check_interrupt("generate");
      settings_.progress(stage, done / kMegabyte, total / kMegabyte);
    };
  }
  Tensor embed(const Tokenizer& tokenizer, const models::TextModel& encoder, const std::string& prompt,
               std::string_view pass, int max_tokens) const;
  Tensor initial_latents(const GenerateRequest& request, int64_t channels) const;
  Tensor velocity(const models::QwenImageTransformer& transformer, const GenerateRequest& request,
                  const Embeddings& text, const Tensor& latents, float timestep, int step) const;

  const ModelFolder& model_;
  Backend& backend_;
  const GenerateSettings& settings_;
};

int64_t latent_size(int pixels) {
  return 2 * (pixels / 16);
}  // sizes floor to multiples of 16 pixels

Tensor Run::embed(const Tokenizer& tokenizer, const models::TextModel& encoder, const std::string& prompt,
                  std::string_view pass, int max_tokens) const {
  const PromptTokens tokens = tokenize_prompt(tokenizer, prompt);
  const Execution stage = execution(-1, pass);
  const Tensor hidden = encoder.forward(tokens.ids, Ctx(stage, "text_encoder"));  // [1, S, D]
  const int64_t end = std::min<int64_t>(hidden.dim(1), tokens.drop + max_tokens);
  if (end <= tokens.drop)
    fail(Code::kBadInput, "encode", "the prompt's template has fewer tokens than the pipeline drops",
         {.expected = "more than " + std::to_string(tokens.drop), .got = std::to_string(hidden.dim(1))});
  return hidden.slice(1, tokens.drop, end).contiguous();
}

std::vector<Embeddings> Run::encode(const std::vector<GenerateRequest>& requests) const {
  const Tokenizer tokenizer = model_.tokenizer();
  const models::TextModel encoder = model_.text_encoder(backend_, settings_.dtype, loading("load text enc."));
  settings_.progress("text encoder", 0, static_cast<int64_t>(requests.size()));
  std::vector<Embeddings> all;
  for (const GenerateRequest& request : requests) {
    check_interrupt("generate");
    Embeddings text;
    const bool same_as_last = !all.empty() && request.prompt == requests[all.size() - 1].prompt &&
                              request.negative_prompt == requests[all.size() - 1].negative_prompt && !settings_.tap;
    if (same_as_last) {
      text = all.back();
    } else {
      text.cond = tap("prompt_embeds", embed(tokenizer, encoder, request.prompt, "cond", request.max_prompt_tokens));
      if (request.guided())
        text.uncond = tap("negative_prompt_embeds",
                          embed(tokenizer, encoder, *request.negative_prompt, "uncond", request.max_prompt_tokens));
    }
    all.push_back(std::move(text));
    settings_.progress("text encoder", static_cast<int64_t>(all.size()), static_cast<int64_t>(requests.size()));
  }
  return all;
}

Tensor Run::initial_latents(const GenerateRequest& request, int64_t channels) const {
  const int64_t height = latent_size(request.height), width = latent_size(request.width);
  const Shape packed{1, height / 2 * (width / 2), channels * 4};
  Tensor latents;
  if (!request.latents) {
    TorchGenerator generator(request.seed);
    latents = pack_latents(torch_randn({1, channels, height, width}, settings_.dtype, generator));
  } else {
    const Tensor& given = *request.latents;
    const bool unpacked =
        given.shape() == Shape{1, 1, channels, height, width} || given.shape() == Shape{1, channels, 1, height, width};
    latents =
        (unpacked ? pack_latents(given.contiguous().reshape({1, channels, height, width})) : given).to(settings_.dtype);
    if (latents.shape() != packed)
      fail(Code::kBadInput, "latents", "the file's shape does not fit the image size",
           {.expected = to_string(packed) + " or " + to_string({1, 1, channels, height, width}),
            .got = to_string(given.shape()),
            .hint = "the --width and --height that the noise was made for"});
  }
  return tap("initial_latents_packed", latents);
}

Tensor Run::velocity(const models::QwenImageTransformer& transformer, const GenerateRequest& request,
                     const Embeddings& text, const Tensor& latents, float timestep, int step) const {
  const std::vector<models::Grid> grids{{1, latent_size(request.height) / 2, latent_size(request.width) / 2}};
  const auto predict = [&](const Tensor& embeds, std::string_view pass) {
    const models::Rope rope = models::make_rope(transformer.config(), grids, embeds.dim(1));
    const Execution stage = execution(step, pass);
    const Tensor v = transformer.forward({.latents = latents, .text = embeds, .timesteps = {timestep}, .rope = &rope},
                                         Ctx(stage, "transformer"));
    return tap("noise_pred", v, step, pass);
  };
  const float scale = static_cast<float>(request.guidance);
  if (!request.guided()) return predict(text.cond, "cond");
  // A listener is offered each pass under its own name, as the official pipeline runs them.
  if (!settings_.tap && runs_as_batch(settings_.guidance, latents.dim(1), text.cond.dim(1), text.uncond.dim(1))) {
    const PaddedText both = pad_together(backend_, text.cond, text.uncond);
    const bool padded = text.cond.dim(1) != text.uncond.dim(1);
    const models::Rope rope = models::make_rope(transformer.config(), grids, both.text.dim(1));
    const Execution stage = execution(step);
    const Tensor v = transformer.forward({.latents = ops::concat(backend_, latents, latents, 0),
                                          .text = both.text,
                                          .timesteps = {timestep, timestep},
                                          .text_mask = padded ? &both.mask : nullptr,
                                          .rope = &rope},
                                         Ctx(stage, "transformer"));  // [2, N, C]
    return ops::guidance(backend_, v.slice(0, 0, 1), v.slice(0, 1, 2), scale);
  }
  const Tensor cond = predict(text.cond, "cond"), uncond = predict(text.uncond, "uncond");
  return tap("noise_pred", ops::guidance(backend_, cond, uncond, scale), step, "combined");
}

std::vector<Tensor> Run::denoise(const std::vector<GenerateRequest>& requests,
                                 const std::vector<Embeddings>& embeddings, const SchedulerConfig& scheduler) const {
  int64_t total = 0, done = 0;
  for (const GenerateRequest& request : requests)
    total += request.sigmas.empty() ? request.steps : static_cast<int64_t>(request.sigmas.size());
  const models::QwenImageTransformer transformer =
      model_.transformer(backend_, settings_.dtype, settings_.quantize_bits, loading("load transformer"));
  settings_.progress("denoise", 0, total);
  std::vector<Tensor> results;
  for (size_t r = 0; r < requests.size(); ++r) {
    Tensor latents = initial_latents(requests[r], transformer.config().in_channels / 4);  // [1, N, C * 4]
    const Schedule schedule = make_schedule(scheduler, requests[r].steps, latents.dim(1), requests[r].sigmas);
    for (int step = 0; step < schedule.steps(); ++step) {
      check_interrupt("generate");
      const Tensor v = velocity(transformer, requests[r], embeddings[r], latents,
                                schedule.model_timestep(step, latents.dtype()), step);
      latents = tap("latents", euler_step(schedule, step, latents, v), step);
      settings_.progress("denoise", ++done, total);
    }
    results.push_back(std::move(latents));
  }
  return results;
}

std::vector<GeneratedImage> Run::decode(const std::vector<GenerateRequest>& requests,
                                        const std::vector<Tensor>& latents) const {
  const models::VaeConfig config = model_.vae_config();
  const models::VaeDecoder decoder = model_.vae_decoder(backend_, settings_.dtype, loading("load VAE"));
  settings_.progress("decode", 0, static_cast<int64_t>(latents.size()));
  std::vector<GeneratedImage> images;
  for (size_t i = 0; i < latents.size(); ++i) {
    check_interrupt("generate");
    const Tensor unpacked =
        unpack_latents(latents[i], latent_size(requests[i].height), latent_size(requests[i].width));  // [1, C, 1, h, w]
    const Tensor z = tap("latents_denormalized", denormalize_latents(unpacked, config));
    const Execution stage = execution();
    const Tensor decoded =
        models::decode_latents(decoder, config, z, settings_.tiling, Ctx(stage, "vae"));  // [1, H, W, 3]
    const Tensor pixels = tap("image", pixels_from_decoded(decoded).select(0, 0));
    images.push_back({pixels, static_cast<int>(pixels.dim(1)), static_cast<int>(pixels.dim(0))});
    settings_.progress("decode", static_cast<int64_t>(i) + 1, static_cast<int64_t>(latents.size()));
  }
  return images;
}

void check(const GenerateRequest& request, const SchedulerConfig& scheduler) {
  if (request.width < 16 || request.height < 16 || request.width > 1 << 14 || request.height > 1 << 14)
    fail(Code::kBadInput, "generate", "the image size is out of range",
         {.expected = "16 to 16384 pixels each way",
          .got = std::to_string(request.width) + "x" + std::to_string(request.height)});
  if (request.sigmas.empty() && request.steps < (scheduler.shift_terminal ? 2 : 1))
    fail(Code::kBadInput, "generate", "one step ends where it starts: the schedule divides 0 by 0",
         {.expected = "2 steps or more",
          .got = std::to_string(request.steps),
          .hint = "--steps 2 or more, or --sigmas"});
  if (request.max_prompt_tokens < 1 || request.max_prompt_tokens > kMaxPromptTokens)
    fail(Code::kBadInput, "generate", "the prompt limit is out of range",
         {.expected = "1 to " + std::to_string(kMaxPromptTokens) + " tokens",
          .got = std::to_string(request.max_prompt_tokens)});
}

}  // namespace

std::vector<GeneratedImage> generate(const ModelFolder& model, Backend& backend, const GenerateSettings& settings,
                                     const std::vector<GenerateRequest>& requests) {
  const SchedulerConfig scheduler = settings.scheduler ? *settings.scheduler : model.scheduler();
  for (const GenerateRequest& request : requests) check(request, scheduler);
  const Run run(model, backend, settings);
  const std::vector<Embeddings> embeddings = run.encode(requests);
  const std::vector<Tensor> latents = run.denoise(requests, embeddings, scheduler);
  return run.decode(requests, latents);
}

}  // namespace lockstep
