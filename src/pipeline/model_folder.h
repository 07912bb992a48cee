// A model folder in diffusers layout, or as mflux writes it (other names, perhaps quantised), opened part by part:
// each component is loaded when its stage starts and freed when it ends.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/qwen2_5_vl/text_model.h"
#include "models/qwen2_5_vl/vision_tower.h"
#include "models/qwen_image/transformer.h"
#include "models/qwen_vae/vae.h"
#include "pipeline/scheduler.h"
#include "text/tokenizer.h"

namespace lockstep {

// Colours (0 to 255) of a normalised latent, for previews: bias + the sum of latent times factors.
struct PreviewMap {
  std::vector<std::array<float, 3>> factors;
  std::array<float, 3> bias = {127.5f, 127.5f, 127.5f};
};

struct ModelDefaults {  // lockstep.json beside model_index.json, where a model wants other defaults than the family's
  int width = 1024, height = 1024, steps = 50;
  double guidance = 4.0;
  std::optional<std::string> negative_prompt;
  // Sides of the areas that pictures are brought to: the result's and the VAE's, and the one the text encoder sees.
  int resolution = 1024, condition_resolution = 384, layered_resolution = 0;
  PreviewMap preview;  // without factors where the folder has none
};

class Pipeline;
struct ImageProcessor;

ModelDefaults read_model_defaults(const fs::path& model);  // the family's where the folder says nothing

class ModelFolder {
 public:
  static ModelFolder open(const fs::path& path);  // checks model_index.json and that every component is there

  const fs::path& path() const { return path_; }
  const ModelDefaults& defaults() const { return defaults_; }
  const Pipeline& pipeline() const { return *pipeline_; }  // how this folder's class makes pictures

  Tokenizer tokenizer() const;
  models::TextModel text_encoder(Backend& backend, DType dtype, nn::LoadProgress progress = {},
                                 models::TextModel::Head head = models::TextModel::Head::kNone) const;
  models::VisionTower vision_tower(Backend& backend, DType dtype, nn::LoadProgress progress = {}) const;
  ImageProcessor image_processor() const;
  models::QwenImageConfig transformer_config() const;
  models::QwenImageTransformer transformer(Backend& backend, DType dtype, nn::LinearFormat linears = {},
                                           nn::LoadProgress progress = {}) const;
  models::VaeConfig vae_config() const;
  models::VaeDecoder vae_decoder(Backend& backend, DType dtype, nn::LoadProgress progress = {}) const;
  models::VaeEncoder vae_encoder(Backend& backend, DType dtype, nn::LoadProgress progress = {}) const;
  const SchedulerConfig& scheduler() const;  // read once: a server asks for it with each request

 private:
  nn::WeightOptions weight_options(DType dtype, nn::LoadProgress progress) const;

  struct ReadOnce;

  fs::path path_;
  std::shared_ptr<ReadOnce> read_once_;
  bool mflux_ = false;
  const Pipeline* pipeline_ = nullptr;
  ModelDefaults defaults_;
};

// The model that comes with the program: beside it in a build, in share/ when installed. Empty when there is none.
fs::path embedded_model_path(std::string_view name = "tiny");

}  // namespace lockstep
