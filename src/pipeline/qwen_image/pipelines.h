// The pipelines of the Qwen-Image family. Each puts the stages together in the order, and with the draws of random
// numbers, of the official class of the same name.
#pragma once
#include "pipeline/decode.h"
#include "pipeline/denoise.h"
#include "pipeline/image_stage.h"
#include "pipeline/noise.h"
#include "pipeline/pipeline.h"

namespace lockstep {

// QwenImagePipeline, QwenImageImg2ImgPipeline, QwenImageInpaintPipeline: one set of weights, three ways to start. A
// request with a picture starts from it, one with a mask keeps what lies outside.
class GeneratePipeline final : public Pipeline {
 public:
  enum class Needs { kPrompt, kPicture, kMask };
  GeneratePipeline(std::string_view name, Needs needs) : name_(name), needs_(needs) {}
  std::string_view class_name() const override { return name_; }
  std::string_view command() const override { return "generate"; }
  std::vector<std::string_view> components() const override;
  void check(const GenerateRequest& request, const SchedulerConfig& scheduler) const override;
  std::vector<GeneratedImage> run(const Stages& stages, const std::vector<GenerateRequest>& requests) const override;

 private:
  std::string_view name_;
  Needs needs_;
};

// QwenImageEditPipeline, QwenImageEditPlusPipeline, QwenImageEditInpaintPipeline.
class EditPipeline final : public Pipeline {
 public:
  enum class Kind { kOne, kSeveral, kMasked };
  EditPipeline(std::string_view name, Kind kind) : name_(name), kind_(kind) {}
  std::string_view class_name() const override { return name_; }
  std::string_view command() const override { return "edit"; }
  std::vector<std::string_view> components() const override;
  void check(const GenerateRequest& request, const SchedulerConfig& scheduler) const override;
  std::vector<GeneratedImage> run(const Stages& stages, const std::vector<GenerateRequest>& requests) const override;

 private:
  struct Pictures;  // of a request, in the sizes that are needed
  Pictures prepare(const Stages& stages, const GenerateRequest& request, const ImageProcessor& processor) const;
  Denoising start(const Stages& stages, const ImageStage& encoder, const GenerateRequest& request,
                  const Pictures& pictures, const Embeddings& text) const;

  std::string_view name_;
  Kind kind_;
};

// QwenImageLayeredPipeline: a picture is taken apart into layers with alpha.
class LayeredPipeline final : public Pipeline {
 public:
  std::string_view class_name() const override { return "QwenImageLayeredPipeline"; }
  std::string_view command() const override { return "edit"; }
  bool makes_layers() const override { return true; }
  std::vector<std::string_view> components() const override;
  void check(const GenerateRequest& request, const SchedulerConfig& scheduler) const override;
  std::vector<GeneratedImage> run(const Stages& stages, const std::vector<GenerateRequest>& requests) const override;
};

// ---- what they share

inline constexpr int64_t kLatentPixels = 8;  // a latent is so many pixels wide

void check_steps(const GenerateRequest& request, const SchedulerConfig& scheduler);
void check_picture_size(int width, int height);
void check_mask(const GenerateRequest& request, std::string_view operation);
void check_strength(const GenerateRequest& request);
models::Grid grid_of(PictureSize size);  // one frame, in tokens

// What a picture gives that is kept outside a mask, or that generating starts from: latents with the noise of the first
// step that is taken. Draws the posterior, then the noise.
struct StartedPicture {
  Tensor latents, noise, image;  // packed [1, N, C]
};
StartedPicture start_from_picture(const Stages& stages, const ImageStage& encoder, const Tensor& pixels,
                                  const Schedule& schedule, int first_step, int64_t channels,
                                  TorchGenerator& generator);
// The mask in latents, repeated over channels and packed.
Tensor packed_mask(const Stages& stages, const Tensor& mask, PictureSize size, int64_t channels);

}  // namespace lockstep
