#include "base/error.h"
#include "ops/elementwise.h"
#include "pipeline/latents.h"
#include "pipeline/qwen_image/pipelines.h"

namespace lockstep {

struct EditPipeline::Pictures {
  PictureSize output;
  VisionInput vision;
  std::vector<Tensor> vae;  // u8 [H, W, 3], as the VAE encodes them
};

std::vector<std::string_view> EditPipeline::components() const {
  return {"scheduler", "tokenizer", "text_encoder", "transformer", "vae", "processor"};
}

void EditPipeline::check(const GenerateRequest& request, const SchedulerConfig& scheduler) const {
  constexpr size_t kMostPictures = 16;
  const size_t most = kind_ == Kind::kSeveral ? kMostPictures : 1;
  if (request.pictures.empty()) fail(Code::kBadInput, "edit", "no picture to edit", {.hint = "--input-image FILE"});
  if (request.pictures.size() > most)
    fail(
        Code::kBadInput, "edit", "more pictures than " + std::string(name_) + " takes",
        {.expected = most == 1 ? "1" : "1 to " + std::to_string(most), .got = std::to_string(request.pictures.size())});
  check_steps(request, scheduler);
  check_mask(request, "edit");
  if (kind_ == Kind::kMasked && !request.mask.defined())
    fail(Code::kBadInput, "edit", std::string(name_) + " needs a mask", {.hint = "--mask FILE"});
  if (request.width || request.height) {
    if (request.mask.defined())
      fail(Code::kBadInput, "edit", "with a mask the result has the picture's size",
           {.hint = "--mask without --width and --height"});
    check_picture_size(request.width ? request.width : 16, request.height ? request.height : 16);
  }
  if (request.mask.defined()) check_strength(request);
  if (request.mask.defined() && request.latents)
    fail(Code::kBadInput, "edit", "noise and a mask exclude each other", {.hint = "--latents or --mask"});
}

// A single picture is shown to both encoders in one size. Several are shown to the text encoder in a smaller one, and
// the last of them gives the result its shape.
EditPipeline::Pictures EditPipeline::prepare(const Stages& stages, const GenerateRequest& request,
                                             const ImageProcessor& processor) const {
  const ModelDefaults& defaults = stages.model().defaults();
  const int64_t side = request.resolution ? request.resolution : defaults.resolution;
  const int64_t small = request.condition_resolution ? request.condition_resolution : defaults.condition_resolution;
  Pictures pictures;
  std::vector<Tensor> conditions;
  for (const Tensor& picture : request.pictures) {
    const PictureSize size = size_for_area(side, picture);
    pictures.vae.push_back(resized(picture, size));
    conditions.push_back(kind_ == Kind::kSeveral ? resized(picture, size_for_area(small, picture))
                                                 : pictures.vae.back());
    // A mask belongs to the first picture, and what is kept is that picture's.
    if (!request.mask.defined() || pictures.vae.size() == 1) pictures.output = size;
  }
  if (request.width) pictures.output.width = request.width;
  if (request.height) pictures.output.height = request.height;
  pictures.output = floored(pictures.output);
  for (Tensor& condition : conditions) condition = stages.tap("condition_images", condition);
  pictures.vision = processor.patches(conditions);
  return pictures;
}

Denoising EditPipeline::start(const Stages& stages, const ImageStage& encoder, const GenerateRequest& request,
                              const Pictures& pictures, const Embeddings& text) const {
  const int64_t channels = stages.model().transformer_config().in_channels / 4;
  const models::Grid grid = grid_of(pictures.output);
  Denoising item{.text = text, .grids = {grid}, .guidance = static_cast<float>(request.guidance)};
  item.schedule = make_schedule(stages.scheduler(), request.steps, grid.tokens(), request.sigmas);
  TorchGenerator generator(request.seed);
  if (request.mask.defined()) {
    item.first_step = first_step_for(request.strength, item.schedule.steps());
    StartedPicture started = start_from_picture(stages, encoder, vae_pixels(pictures.vae[0]), item.schedule,
                                                item.first_step, channels, generator);
    item.latents = started.latents;
    item.kept = KeptPicture{started.noise, started.image, packed_mask(stages, request.mask, pictures.output, channels)};
  }
  for (size_t i = 0; i < pictures.vae.size(); ++i) {
    const Tensor& picture = pictures.vae[i];
    Tensor packed;
    if (i == 0 && item.kept && kind_ != Kind::kSeveral) {
      packed = item.kept->image;  // the sample that is kept is the condition too
    } else {
      const Tensor z = encoder.mean(vae_pixels(picture));  // [1, C, 1, h, w]
      packed = pack_frames(stages.backend(), z.reshape({1, 1, channels, z.dim(3), z.dim(4)}));
    }
    item.condition = item.condition.defined() ? ops::concat(stages.backend(), item.condition, packed, 1) : packed;
    item.grids.push_back(grid_of({picture.dim(1), picture.dim(0)}));
  }
  if (!item.kept) {
    item.condition = stages.tap("image_latents", item.condition);
    item.latents = initial_latents(stages, request, 1, channels, 2 * grid.height, 2 * grid.width, generator);
  }
  return item;
}

std::vector<GeneratedImage> EditPipeline::run(const Stages& stages,
                                              const std::vector<GenerateRequest>& requests) const {
  const ImageProcessor processor = stages.model().image_processor();
  std::vector<Pictures> pictures;
  std::vector<VisionInput> vision;
  for (const GenerateRequest& request : requests) {
    pictures.push_back(prepare(stages, request, processor));
    vision.push_back(pictures.back().vision);
    stages.tap("pixel_values", vision.back().patches);
  }
  const std::vector<Embeddings> text = encode_edit_prompts(stages, requests, vision, kind_ == Kind::kSeveral);
  std::vector<Denoising> work;
  {
    const ImageStage encoder(stages);
    stages.report("encode pictures", 0, static_cast<int64_t>(requests.size()));
    for (size_t i = 0; i < requests.size(); ++i) {
      work.push_back(start(stages, encoder, requests[i], pictures[i], text[i]));
      stages.report("encode pictures", static_cast<int64_t>(i) + 1, static_cast<int64_t>(requests.size()));
    }
  }
  std::vector<Tensor> latents = denoise(stages, std::move(work));
  std::vector<Decoding> results;
  for (size_t i = 0; i < latents.size(); ++i) results.push_back({std::move(latents[i]), pictures[i].output});
  return decode(stages, std::move(results));
}

}  // namespace lockstep
