// What all stages of a run share: the model, the backend and the settings, and how a tensor is offered and progress
// told.
#pragma once
#include "base/interrupt.h"
#include "pipeline/generate.h"

namespace lockstep {

class Stages {
 public:
  Stages(const ModelFolder& model, Backend& backend, const GenerateSettings& settings)
      : model_(model),
        backend_(backend),
        settings_(settings),
        scheduler_(settings.scheduler ? *settings.scheduler : model.scheduler()) {}

  const ModelFolder& model() const { return model_; }
  Backend& backend() const { return backend_; }
  const GenerateSettings& settings() const { return settings_; }
  const SchedulerConfig& scheduler() const { return scheduler_; }
  DType dtype() const { return settings_.dtype; }
  bool listening() const { return settings_.tap != nullptr; }

  nn::Execution execution(int step = -1, std::string_view pass = {}) const;
  Tensor tap(std::string_view name, Tensor tensor, int step = -1, std::string_view pass = {}) const;
  nn::LoadProgress loading(const char* stage) const;
  bool dropped(size_t request) const { return settings_.watch && settings_.watch->dropped(request); }
  // Stops the work of this thread at the next layer once `dropped` says so.
  StopWhen stop_at_layer(std::function<bool()> dropped) const {
    return StopWhen(
        [watch = settings_.watch, dropped = std::move(dropped)] {
          if (dropped()) return true;
          if (watch) watch->layer_begins();
          return false;
        },
        StopWhen::Asked::kAlways);
  }

  // The model's parts, from the shelf or loaded now.
  std::shared_ptr<const Tokenizer> tokenizer() const;
  std::shared_ptr<const models::TextModel> text_encoder(
      models::TextModel::Head head = models::TextModel::Head::kNone) const;
  std::shared_ptr<const models::VisionTower> vision_tower() const;
  std::shared_ptr<const models::QwenImageTransformer> transformer() const;
  std::shared_ptr<const models::VaeDecoder> vae_decoder() const;
  std::shared_ptr<const models::VaeEncoder> vae_encoder() const;
  void report(std::string_view stage, int64_t done, int64_t total) const { settings_.progress(stage, done, total); }

 private:
  template <typename Model, typename Load>
  std::shared_ptr<const Model> part(const char* name, Load load) const {
    if (!settings_.shelf) return std::make_shared<const Model>(load());
    return std::static_pointer_cast<const Model>(
        settings_.shelf->part(name, [&] { return PartShelf::Part(std::make_shared<const Model>(load())); }));
  }

  const ModelFolder& model_;
  Backend& backend_;
  const GenerateSettings& settings_;
  SchedulerConfig scheduler_;
};

}  // namespace lockstep
