// What a picture is made from, how, and what comes out: the same for every pipeline. Which pipeline runs is said by the
// model folder.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/guidance.h"
#include "pipeline/model_folder.h"
#include "pipeline/watch.h"

namespace lockstep {

// Where the text encoder places the tokens of pictures.
enum class ImagePositions {
  kOfficial,  // one behind the other, as diffusers 0.42.1 does with transformers 5
  kMrope,     // rows and columns, as the model was trained
};

// Whose random numbers a seed stands for.
enum class NoiseStream {
  kTorch,      // torch's on the CPU: the same picture on every device
  kTorchCuda,  // torch's on CUDA, which depend on the card's size; drawn on such a card
};

struct GenerateRequest {
  std::string prompt;
  std::optional<std::string> negative_prompt;
  int width = 1024, height = 1024, steps = 50;  // editing takes 0: from the pictures
  double guidance = 4.0;
  uint64_t seed = 0;
  NoiseStream noise = NoiseStream::kTorch;
  std::optional<Tensor> latents;  // initial noise: packed [1, N, C * 4] or [1, 1, C, h, w]; else drawn from the seed
  std::vector<double> sigmas;     // empty: the schedule's own
  int max_prompt_tokens = 512;

  std::vector<Tensor> pictures;  // u8 [H, W, 3] (layers: 4): what is edited, or what generating starts from
  Tensor mask;                   // u8 [H, W, 1]: 255 where new pixels are wanted
  double strength = 0.6;         // how much of the schedule a picture that generating starts from goes through
  int resolution = 0, condition_resolution = 0;  // sides of the areas pictures are brought to; 0: the model's
  ImagePositions positions = ImagePositions::kOfficial;
  int layers = 4;
  bool rescale_layers = false;   // the norm rescale of guidance, which the other pipelines always do
  bool english_caption = false;  // for a picture without a prompt
  bool greedy_caption = false;   // instead of the model's own way of choosing words

  bool guided() const { return guidance > 1 && negative_prompt.has_value(); }
};

// ./dev bench image_server: with few image tokens a batch of 8 takes less of the processor than 8 alone, with 64 hardly
// less, and the bits are the same; more than so many together were not measured.
inline constexpr int64_t kBatchTokens = 512;

struct GenerateSettings {
  DType dtype = DType::kF32;
  Tap* tap = nullptr;
  nn::LinearFormat linears = {};  // of the transformer
  std::optional<models::Tiling> tiling;
  std::optional<SchedulerConfig> scheduler;  // instead of the model folder's
  GuidanceRun guidance = GuidanceRun::kAuto;
  // Pictures of one shape go through the transformer together, with at most so many image tokens; 0: one by one.
  int64_t batch_tokens = kBatchTokens;
  RunWatch* watch = nullptr;
  PartShelf* shelf = nullptr;      // without one each stage is loaded when it starts and freed when it ends
  PromptShelf* prompts = nullptr;  // of prompts without pictures; a listener (tap) has them computed all the same
  // Called as work goes on: stage name, done, total; for "load ..." in megabytes.
  std::function<void(std::string_view stage, int64_t done, int64_t total)> progress = [](auto...) {};
};

struct GeneratedImage {
  Tensor pixels;  // u8 [H, W, 3], a layer [H, W, 4]
  int width = 0, height = 0;
  size_t request = 0;   // which one it answers
  int layer = -1;       // from 0, of a picture taken apart
  std::string caption;  // the prompt that the model wrote itself
};

// What a picture's file says about how it was made.
std::map<std::string, std::string> picture_text(const GenerateRequest& request, const GeneratedImage& image,
                                                const ModelFolder& model);

// Each stage is loaded once for all requests and freed before the next, unless there is a shelf to keep it: text
// encoder, VAE encoder where pictures go in, transformer, VAE decoder. Requests that do not fit the model's pipeline
// are refused before anything is loaded. Dropped requests have no picture; Error{kCancelled} when all are dropped.
std::vector<GeneratedImage> generate(const ModelFolder& model, Backend& backend, const GenerateSettings& settings,
                                     const std::vector<GenerateRequest>& requests);

}  // namespace lockstep
