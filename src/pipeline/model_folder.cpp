#include "pipeline/model_folder.h"

#include "base/error.h"
#include "io/checkpoint.h"

namespace lockstep {
namespace {

// Builds a model from a component's folder and settles its weight accounts.
template <typename Model, typename Config>
Model load_component(const fs::path& folder, std::string_view component, const Config& config, Backend& backend,
                     DType dtype) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const nn::Weights weights(checkpoint, backend, {.dtype = dtype});
  Model model(weights, config);
  weights.finish(component);
  return model;
}

ModelDefaults read_defaults(const fs::path& path) {
  ModelDefaults defaults;
  if (!fs::exists(path)) return defaults;
  const models::ConfigReader reader = models::read_config(path, "");
  defaults.width = static_cast<int>(reader.integer_or("width", defaults.width, 16, 1 << 14));
  defaults.height = static_cast<int>(reader.integer_or("height", defaults.height, 16, 1 << 14));
  defaults.steps = static_cast<int>(reader.integer_or("steps", defaults.steps, 1, 10000));
  defaults.guidance = reader.number_or("guidance", defaults.guidance);
  if (reader.has("negative_prompt")) defaults.negative_prompt = reader.text_or("negative_prompt", "");
  return defaults;
}

}  // namespace

ModelFolder ModelFolder::open(const fs::path& path) {
  if (!fs::is_directory(path))
    fail(Code::kNotFound, "model", path.string() + " is no folder",
         {.expected = "a folder with model_index.json", .hint = "--model DIR"});
  const models::ConfigReader index = models::read_config(path / "model_index.json", "");
  const std::string pipeline = index.text_or("_class_name", "");
  if (pipeline != "QwenImagePipeline") index.refuse("_class_name", "QwenImagePipeline");
  for (const char* component : {"scheduler", "tokenizer", "text_encoder", "transformer", "vae"})
    if (!fs::is_directory(path / component))
      fail(Code::kNotFound, "model", (path / component).string() + " is missing");
  ModelFolder folder;
  folder.path_ = path;
  folder.defaults_ = read_defaults(path / "lockstep.json");
  return folder;
}

Tokenizer ModelFolder::tokenizer() const {
  return Tokenizer::load(path_ / "tokenizer");
}
SchedulerConfig ModelFolder::scheduler() const {
  return read_scheduler_config(path_ / "scheduler" / "scheduler_config.json");
}
models::VaeConfig ModelFolder::vae_config() const {
  return models::read_vae_config(path_ / "vae" / "config.json");
}

models::TextModel ModelFolder::text_encoder(Backend& backend, DType dtype) const {
  return load_component<models::TextModel>(path_ / "text_encoder", "text_encoder",
                                           models::read_text_config(path_ / "text_encoder" / "config.json"), backend,
                                           dtype);
}

models::QwenImageTransformer ModelFolder::transformer(Backend& backend, DType dtype) const {
  return load_component<models::QwenImageTransformer>(
      path_ / "transformer", "transformer", models::read_qwen_image_config(path_ / "transformer" / "config.json"),
      backend, dtype);
}

models::VaeDecoder ModelFolder::vae_decoder(Backend& backend, DType dtype) const {
  return load_component<models::VaeDecoder>(path_ / "vae", "vae", vae_config(), backend, dtype);
}
models::VaeEncoder ModelFolder::vae_encoder(Backend& backend, DType dtype) const {
  return load_component<models::VaeEncoder>(path_ / "vae", "vae", vae_config(), backend, dtype);
}

fs::path embedded_model_path() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path bin = program.parent_path();
  for (const fs::path& candidate : {bin / "../share/lockstep/models/tiny", bin / "../../models/tiny"})
    if (fs::exists(candidate / "model_index.json", error)) return fs::weakly_canonical(candidate, error);
  return {};
}

}  // namespace lockstep
