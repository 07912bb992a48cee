#include "base/error.h"
#include "pipeline/qwen_image/pipelines.h"

namespace lockstep {

std::vector<std::string_view> GeneratePipeline::components() const {
  return {"scheduler", "tokenizer", "text_encoder", "transformer", "vae"};
}

void GeneratePipeline::check(const GenerateRequest& request, const SchedulerConfig& scheduler) const {
  check_picture_size(request.width, request.height);
  check_steps(request, scheduler);
  check_mask(request, "generate");
  if (request.pictures.empty() && needs_ != Needs::kPrompt)
    fail(Code::kBadInput, "generate", std::string(name_) + " starts from a picture", {.hint = "--init-image FILE"});
  if (!request.mask.defined() && needs_ == Needs::kMask)
    fail(Code::kBadInput, "generate", std::string(name_) + " needs a mask", {.hint = "--mask FILE"});
  if (request.pictures.size() > 1)
    fail(Code::kBadInput, "generate", "more pictures than the model takes",
         {.expected = "1", .got = std::to_string(request.pictures.size())});
  if (!request.pictures.empty()) check_strength(request);
  if (!request.pictures.empty() && request.noise == NoiseStream::kTorchCuda)
    fail(Code::kUnsupported, "generate", "a picture to start from draws from torch's CPU numbers",
         {.hint = "--noise torch"});
  if (!request.pictures.empty() && request.latents)
    fail(Code::kBadInput, "generate", "noise and a picture to start from exclude each other",
         {.hint = "--latents or --init-image"});
}

std::vector<GeneratedImage> GeneratePipeline::run(const Stages& stages,
                                                  const std::vector<GenerateRequest>& requests) const {
  const std::vector<Embeddings> text = encode_prompts(stages, requests);
  const int64_t channels = stages.model().transformer_config().in_channels / 4;
  std::vector<Denoising> work;
  std::vector<PictureSize> sizes;
  {
    std::optional<ImageStage> encoder;  // loaded for the first request with a picture
    for (size_t i = 0; i < requests.size(); ++i) {
      const GenerateRequest& request = requests[i];
      const PictureSize size = floored({request.width, request.height});
      const models::Grid grid = grid_of(size);
      Denoising item{.text = text[i], .grids = {grid}, .guidance = static_cast<float>(request.guidance)};
      item.schedule = make_schedule(stages.scheduler(), request.steps, grid.tokens(), request.sigmas);
      TorchGenerator generator(request.seed);
      if (request.pictures.empty()) {
        item.latents = initial_latents(stages, request, 1, channels, 2 * grid.height, 2 * grid.width, generator);
      } else {
        if (!encoder) encoder.emplace(stages);
        item.first_step = first_step_for(request.strength, item.schedule.steps());
        const Tensor pixels = vae_pixels(resized(request.pictures[0], size));
        StartedPicture started =
            start_from_picture(stages, *encoder, pixels, item.schedule, item.first_step, channels, generator);
        item.latents = started.latents;
        if (request.mask.defined())
          item.kept = KeptPicture{started.noise, started.image, packed_mask(stages, request.mask, size, channels)};
      }
      work.push_back(std::move(item));
      sizes.push_back(size);
    }
  }
  std::vector<Tensor> latents = denoise(stages, std::move(work));
  std::vector<Decoding> results;
  for (size_t i = 0; i < latents.size(); ++i) results.push_back({std::move(latents[i]), sizes[i]});
  return decode(stages, std::move(results));
}

}  // namespace lockstep
