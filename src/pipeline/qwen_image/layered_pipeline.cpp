#include <cmath>

#include "base/error.h"
#include "io/picture_modes.h"
#include "pipeline/latents.h"
#include "pipeline/qwen_image/caption.h"
#include "pipeline/qwen_image/pipelines.h"

namespace lockstep {
namespace {

constexpr int kLayeredResolution = 640;

// Those of the other pipelines, on another way to nearly the same numbers.
std::vector<double> layered_sigmas(int steps) {
  std::vector<double> sigmas;
  const double step = -1.0 / steps;  // linspace(1, 0, n + 1) without the end
  for (int i = 0; i < steps; ++i) sigmas.push_back(static_cast<double>(i) * step + 1.0);
  return sigmas;
}

// Prompts for requests that have none, each written by the model about its picture.
std::vector<GenerateRequest> with_captions(const Stages& stages, const std::vector<GenerateRequest>& requests,
                                           const std::vector<Tensor>& pictures) {
  std::vector<GenerateRequest> described = requests;
  std::optional<Captioner> captioner;
  for (size_t i = 0; i < described.size(); ++i) {
    if (!described[i].prompt.empty() && described[i].prompt != " ") continue;
    if (!captioner) captioner.emplace(stages);
    described[i].prompt = captioner->describe(rgb_over_white(pictures[i]), described[i]);
  }
  return described;
}

std::vector<Embeddings> encode_layered_prompts(const Stages& stages, const std::vector<GenerateRequest>& requests) {
  const auto tokenizer = stages.tokenizer();
  const auto encoder = stages.text_encoder();
  return embed_all(stages, requests,
                   [&](const GenerateRequest& request, const std::string& prompt, std::string_view pass) {
                     return embed_prompt(stages, *encoder, tokenize_whole_prompt(*tokenizer, prompt),
                                         request.max_prompt_tokens, pass);
                   });
}

}  // namespace

std::vector<std::string_view> LayeredPipeline::components() const {
  return {"scheduler", "tokenizer", "text_encoder", "transformer", "vae", "processor"};
}

void LayeredPipeline::check(const GenerateRequest& request, const SchedulerConfig& scheduler) const {
  if (request.pictures.size() != 1)
    fail(Code::kBadInput, "edit", "QwenImageLayeredPipeline takes one picture apart",
         {.expected = "1 picture", .got = std::to_string(request.pictures.size()), .hint = "--input-image FILE"});
  if (request.mask.defined()) fail(Code::kBadInput, "edit", "QwenImageLayeredPipeline takes no mask");
  if (request.width || request.height)
    fail(Code::kBadInput, "edit", "layers have the picture's shape", {.hint = "--resolution 640 or 1024"});
  constexpr int kMostLayers = 64;
  if (request.layers < 1 || request.layers > kMostLayers)
    fail(Code::kBadInput, "edit", "the number of layers is out of range",
         {.expected = "1 to " + std::to_string(kMostLayers), .got = std::to_string(request.layers)});
  check_steps(request, scheduler);
}

std::vector<GeneratedImage> LayeredPipeline::run(const Stages& stages,
                                                 const std::vector<GenerateRequest>& requests) const {
  std::vector<Tensor> pictures;  // u8 [H, W, 4]
  for (const GenerateRequest& request : requests) {
    const int own = stages.model().defaults().layered_resolution;
    const int64_t side = request.resolution ? request.resolution : own ? own : kLayeredResolution;
    const Tensor picture = rgba_picture(request.pictures[0]);
    pictures.push_back(resized(picture, size_for_area(side, picture)));
  }
  const std::vector<GenerateRequest> described = with_captions(stages, requests, pictures);
  const std::vector<Embeddings> text = encode_layered_prompts(stages, described);
  const int64_t channels = stages.model().transformer_config().in_channels / 4;
  std::vector<Denoising> work;
  {
    const ImageStage encoder(stages);
    for (size_t i = 0; i < requests.size(); ++i) {
      const GenerateRequest& request = requests[i];
      const models::Grid grid = grid_of({pictures[i].dim(1), pictures[i].dim(0)});
      const int64_t frames = request.layers + 1;  // the first is the picture put together again
      const Tensor z = encoder.mean(vae_pixels(pictures[i]));
      Denoising item{.text = text[i],
                     .grids = std::vector<models::Grid>(static_cast<size_t>(frames) + 1, grid),
                     .guidance = static_cast<float>(request.guidance),
                     .rescale = request.rescale_layers};
      item.condition =
          stages.tap("image_latents", pack_frames(stages.backend(), z.reshape({1, 1, channels, z.dim(3), z.dim(4)})));
      const double mu = std::sqrt(static_cast<double>(item.condition.dim(1)) / 256.0);
      item.schedule = make_schedule(stages.scheduler(),
                                    request.sigmas.empty() ? layered_sigmas(request.steps) : request.sigmas, mu);
      TorchGenerator generator(request.seed);
      item.latents = initial_latents(stages, request, frames, channels, 2 * grid.height, 2 * grid.width, generator);
      work.push_back(std::move(item));
    }
  }
  std::vector<Tensor> latents = denoise(stages, std::move(work));
  std::vector<Decoding> results;
  for (size_t i = 0; i < latents.size(); ++i)
    results.push_back({std::move(latents[i]), {pictures[i].dim(1), pictures[i].dim(0)}, requests[i].layers + 1});
  std::vector<GeneratedImage> images = decode(stages, std::move(results));
  for (GeneratedImage& image : images)
    if (described[image.request].prompt != requests[image.request].prompt)
      image.caption = described[image.request].prompt;
  return images;
}

}  // namespace lockstep
