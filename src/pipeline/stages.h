// What all stages of a run share: the model, the backend and the settings, and how a tensor is offered and progress
// told.
#pragma once
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
  void report(std::string_view stage, int64_t done, int64_t total) const { settings_.progress(stage, done, total); }

 private:
  const ModelFolder& model_;
  Backend& backend_;
  const GenerateSettings& settings_;
  SchedulerConfig scheduler_;
};

}  // namespace lockstep
