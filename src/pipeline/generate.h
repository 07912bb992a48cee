// Text to image: the official QwenImagePipeline, stage by stage.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/guidance.h"
#include "pipeline/model_folder.h"

namespace lockstep {

struct GenerateRequest {
  std::string prompt;
  std::optional<std::string> negative_prompt;
  int width = 1024, height = 1024, steps = 50;
  double guidance = 4.0;
  uint64_t seed = 0;
  std::optional<Tensor> latents;  // initial noise: packed [1, N, C * 4] or [1, 1, C, h, w]; else drawn from the seed
  std::vector<double> sigmas;     // empty: the schedule's own
  int max_prompt_tokens = 512;

  bool guided() const { return guidance > 1 && negative_prompt.has_value(); }
};

struct GenerateSettings {
  DType dtype = DType::kF32;
  Tap* tap = nullptr;
  int quantize_bits = 0;  // the transformer's dense linear weights, at load
  std::optional<models::Tiling> tiling;
  std::optional<SchedulerConfig> scheduler;  // instead of the model folder's
  GuidanceRun guidance = GuidanceRun::kAuto;
  // Called as work goes on: stage name, done, total; for "load ..." in megabytes.
  std::function<void(std::string_view stage, int64_t done, int64_t total)> progress = [](auto...) {};
};

struct GeneratedImage {
  Tensor pixels;  // u8 [H, W, 3]
  int width = 0, height = 0;
};

// Each stage is loaded once for all requests and freed before the next: text encoder, transformer, VAE.
std::vector<GeneratedImage> generate(const ModelFolder& model, Backend& backend, const GenerateSettings& settings,
                                     const std::vector<GenerateRequest>& requests);

}  // namespace lockstep
