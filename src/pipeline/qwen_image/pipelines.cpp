#include "pipeline/qwen_image/pipelines.h"

#include <array>

#include "base/error.h"
#include "ops/elementwise.h"
#include "pipeline/latents.h"
#include "tensor/rehearsal.h"

namespace lockstep {
namespace {

// Every pipeline there is: the class that model_index.json names.
const std::array<const Pipeline*, 7>& all_pipelines() {
  using Needs = GeneratePipeline::Needs;
  using Kind = EditPipeline::Kind;
  static const GeneratePipeline generate("QwenImagePipeline", Needs::kPrompt);
  static const GeneratePipeline from_image("QwenImageImg2ImgPipeline", Needs::kPicture);
  static const GeneratePipeline inpaint("QwenImageInpaintPipeline", Needs::kMask);
  static const EditPipeline edit("QwenImageEditPipeline", Kind::kOne);
  static const EditPipeline edit_plus("QwenImageEditPlusPipeline", Kind::kSeveral);
  static const EditPipeline edit_inpaint("QwenImageEditInpaintPipeline", Kind::kMasked);
  static const LayeredPipeline layered;
  static const std::array<const Pipeline*, 7> all{&generate,  &from_image,   &inpaint, &edit,
                                                  &edit_plus, &edit_inpaint, &layered};
  return all;
}

}  // namespace

const Pipeline* pipeline_named(std::string_view class_name) {
  for (const Pipeline* pipeline : all_pipelines())
    if (pipeline->class_name() == class_name) return pipeline;
  return nullptr;
}

std::vector<std::string_view> pipeline_names() {
  std::vector<std::string_view> names;
  for (const Pipeline* pipeline : all_pipelines()) names.push_back(pipeline->class_name());
  return names;
}

void check_steps(const GenerateRequest& request, const SchedulerConfig& scheduler) {
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

void check_picture_size(int width, int height) {
  if (width < 16 || height < 16 || width > 1 << 14 || height > 1 << 14)
    fail(Code::kBadInput, "generate", "the image size is out of range",
         {.expected = "16 to 16384 pixels each way", .got = std::to_string(width) + "x" + std::to_string(height)});
}

void check_mask(const GenerateRequest& request, std::string_view operation) {
  if (!request.mask.defined()) return;
  const auto size_of = [](const Tensor& picture) {
    return std::to_string(picture.dim(1)) + "x" + std::to_string(picture.dim(0));
  };
  if (request.pictures.empty())
    fail(Code::kBadInput, operation, "a mask without the picture it belongs to",
         {.hint = operation == "generate" ? "--init-image FILE" : "--input-image FILE"});
  const Tensor& picture = request.pictures.front();
  if (request.mask.dim(0) != picture.dim(0) || request.mask.dim(1) != picture.dim(1))
    fail(Code::kBadInput, operation, "the mask has another size than the picture",
         {.expected = size_of(picture), .got = size_of(request.mask)});
}

void check_strength(const GenerateRequest& request) {
  const int steps = request.sigmas.empty() ? request.steps : static_cast<int>(request.sigmas.size());
  if (!(request.strength >= 0 && request.strength <= 1))
    fail(Code::kBadInput, "generate", "the strength is out of range",
         {.expected = "0 to 1", .got = std::to_string(request.strength)});
  if (steps - first_step_for(request.strength, steps) < 1)
    fail(Code::kBadInput, "generate", "the strength leaves no step to take",
         {.expected = "at least 1 of " + std::to_string(steps) + " steps",
          .got = std::to_string(request.strength),
          .hint = "a higher --strength or more --steps"});
}

models::Grid grid_of(PictureSize size) {
  return {1, size.height / (2 * kLatentPixels), size.width / (2 * kLatentPixels)};
}

StartedPicture start_from_picture(const Stages& stages, const ImageStage& encoder, const Tensor& pixels,
                                  const Schedule& schedule, int first_step, int64_t channels,
                                  TorchGenerator& generator) {
  const Tensor z = encoder.sample(pixels, generator);  // [1, C, 1, h, w]
  const int64_t height = z.dim(3), width = z.dim(4);
  StartedPicture started;
  started.image =
      stages.tap("image_latents", pack_frames(stages.backend(), z.reshape({1, 1, channels, height, width})));
  started.noise = pack_frames(stages.backend(), draw_noise(stages, 1, channels, height, width, generator));
  started.latents = stages.tap("initial_latents_packed",
                               with_noise(stages.backend(), schedule, first_step, started.image, started.noise));
  return started;
}

Tensor packed_mask(const Stages& stages, const Tensor& mask, PictureSize size, int64_t channels) {
  const Tensor fitted = resized(mask, size);
  const int64_t height = size.height / kLatentPixels, width = size.width / kLatentPixels;
  Tensor latents = Tensor::empty(DType::kF32, {1, 1, channels, height, width});
  if (!rehearsing()) {
    const uint8_t* from = fitted.data<uint8_t>();
    float* to = latents.mutable_data<float>();
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t y = 0; y < height; ++y)
        for (int64_t x = 0; x < width; ++x)  // nearest: the upper left of the pixels under a latent; half and more is 1
          *to++ = from[y * kLatentPixels * size.width + x * kLatentPixels] >= 128 ? 1.0f : 0.0f;
  }
  return stages.tap("mask", pack_frames(stages.backend(), stages.backend().upload(latents.to(stages.dtype()))));
}

}  // namespace lockstep
