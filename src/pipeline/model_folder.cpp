#include "pipeline/model_folder.h"

#include <mutex>

#include "base/error.h"
#include "base/platform/executable.h"
#include "io/checkpoint.h"
#include "models/mflux_names.h"
#include "pipeline/pictures.h"
#include "pipeline/pipeline.h"
#include "pipeline/qwen_image/released.h"

namespace lockstep {
namespace {

// Builds a model from a component's folder and settles its weight accounts.
template <typename Model, typename Config, typename... More>
Model load_component(const fs::path& folder, std::string_view component, const Config& config, Backend& backend,
                     nn::WeightOptions options, More... more) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const nn::Weights weights(checkpoint, backend, std::move(options));
  Model model(weights, config, more...);
  weights.finish(component);
  return model;
}

// Reads a component's config, or falls back where mflux has none.
template <typename Read, typename Config>
Config config_or(const fs::path& path, bool mflux, Read read, Config released) {
  return mflux && !fs::exists(path) ? released : read(path);
}

}  // namespace

ModelDefaults read_model_defaults(const fs::path& model) {
  ModelDefaults defaults;
  const fs::path path = model / "lockstep.json";
  if (!fs::exists(path)) return defaults;
  const models::ConfigReader reader = models::read_config(path, "");
  defaults.width = static_cast<int>(reader.integer_or("width", defaults.width, 16, 1 << 14));
  defaults.height = static_cast<int>(reader.integer_or("height", defaults.height, 16, 1 << 14));
  defaults.steps = static_cast<int>(reader.integer_or("steps", defaults.steps, 1, 10000));
  defaults.guidance = reader.number_or("guidance", defaults.guidance);
  defaults.resolution = static_cast<int>(reader.integer_or("resolution", defaults.resolution, 32, 1 << 13));
  defaults.condition_resolution =
      static_cast<int>(reader.integer_or("condition_resolution", defaults.condition_resolution, 32, 1 << 13));
  if (reader.has("resolution")) defaults.layered_resolution = defaults.resolution;
  if (reader.has("preview_factors")) {
    const std::vector<double> factors = reader.numbers("preview_factors"), bias = reader.numbers("preview_bias");
    if (factors.size() % 3 || factors.size() > 3 * 256) reader.refuse("preview_factors", "three numbers a channel");
    if (bias.size() != 3) reader.refuse("preview_bias", "three numbers");
    for (size_t i = 0; i < factors.size(); i += 3)
      defaults.preview.factors.push_back(
          {static_cast<float>(factors[i]), static_cast<float>(factors[i + 1]), static_cast<float>(factors[i + 2])});
    for (size_t i = 0; i < 3; ++i) defaults.preview.bias[i] = static_cast<float>(bias[i]);
  }
  if (reader.has("negative_prompt")) defaults.negative_prompt = reader.text_or("negative_prompt", "");
  return defaults;
}

struct ModelFolder::ReadOnce {
  std::once_flag asked;
  SchedulerConfig scheduler;
};

ModelFolder ModelFolder::open(const fs::path& path) {
  if (!fs::is_directory(path))
    fail(Code::kNotFound, "model", path.string() + " is no folder",
         {.expected = "a folder with model_index.json", .hint = "--model DIR"});
  const bool mflux = !fs::exists(path / "model_index.json") && fs::is_directory(path / "transformer") &&
                     Checkpoint::open(path / "transformer").find("transformer_blocks.0.img_mod_linear.weight");
  const Pipeline* pipeline = pipeline_named("QwenImagePipeline");
  if (!mflux) {
    const models::ConfigReader index = models::read_config(path / "model_index.json", "");
    pipeline = pipeline_named(index.text_or("_class_name", ""));
    if (!pipeline) {
      std::string known;
      for (const std::string_view name : pipeline_names()) known += (known.empty() ? "" : ", ") + std::string(name);
      index.refuse("_class_name", "one of " + known);
    }
  }
  for (const std::string_view component : pipeline->components())
    if (!(mflux && component == "scheduler") && !fs::is_directory(path / component))
      fail(Code::kNotFound, "model", (path / component).string() + " is missing");
  ModelFolder folder;
  folder.path_ = path;
  folder.read_once_ = std::make_shared<ReadOnce>();
  folder.mflux_ = mflux;
  folder.pipeline_ = pipeline;
  folder.defaults_ = read_model_defaults(path);
  return folder;
}

nn::WeightOptions ModelFolder::weight_options(DType dtype, nn::LoadProgress progress) const {
  nn::WeightOptions options{.dtype = dtype, .progress = std::move(progress)};
  options.channels_last_convolutions = mflux_;
  if (mflux_) options.may_lack = {"norm_out.linear.bias"};  // mflux's module has none, so its files lack it
  return options;
}

Tokenizer ModelFolder::tokenizer() const {
  return Tokenizer::load(path_ / "tokenizer");
}
const SchedulerConfig& ModelFolder::scheduler() const {
  std::call_once(read_once_->asked, [this] {
    read_once_->scheduler =
        config_or(path_ / "scheduler/scheduler_config.json", mflux_, read_scheduler_config, released::scheduler());
  });
  return read_once_->scheduler;
}
models::VaeConfig ModelFolder::vae_config() const {
  return config_or(path_ / "vae/config.json", mflux_, models::read_vae_config, released::vae());
}

models::TextModel ModelFolder::text_encoder(Backend& backend, DType dtype, nn::LoadProgress progress,
                                            models::TextModel::Head head) const {
  const models::TextConfig config =
      config_or(path_ / "text_encoder/config.json", mflux_, models::read_text_config, released::text_encoder());
  nn::WeightOptions options = weight_options(dtype, std::move(progress));
  if (mflux_) options.rename = models::mflux_text_name;
  return load_component<models::TextModel>(path_ / "text_encoder", "text_encoder", config, backend, std::move(options),
                                           head);
}

models::VisionTower ModelFolder::vision_tower(Backend& backend, DType dtype, nn::LoadProgress progress) const {
  return load_component<models::VisionTower>(path_ / "text_encoder", "text_encoder",
                                             models::read_vision_config(path_ / "text_encoder/config.json"), backend,
                                             weight_options(dtype, std::move(progress)));
}

ImageProcessor ModelFolder::image_processor() const {
  return read_image_processor(path_ / "processor");
}

models::QwenImageConfig ModelFolder::transformer_config() const {
  return config_or(path_ / "transformer/config.json", mflux_, models::read_qwen_image_config, released::transformer());
}

models::QwenImageTransformer ModelFolder::transformer(Backend& backend, DType dtype, nn::LinearFormat linears,
                                                      nn::LoadProgress progress) const {
  nn::WeightOptions options = weight_options(dtype, std::move(progress));
  options.linears = linears;
  if (mflux_) options.rename = models::mflux_transformer_name;
  return load_component<models::QwenImageTransformer>(path_ / "transformer", "transformer", transformer_config(),
                                                      backend, std::move(options));
}

models::VaeDecoder ModelFolder::vae_decoder(Backend& backend, DType dtype, nn::LoadProgress progress) const {
  const models::VaeConfig config = vae_config();
  nn::WeightOptions options = weight_options(dtype, std::move(progress));
  if (mflux_)
    options.rename = [blocks = config.res_blocks](const std::string& name) {
      return models::mflux_vae_name(name, blocks);
    };
  return load_component<models::VaeDecoder>(path_ / "vae", "vae", config, backend, std::move(options));
}

models::VaeEncoder ModelFolder::vae_encoder(Backend& backend, DType dtype, nn::LoadProgress progress) const {
  const models::VaeConfig config = vae_config();
  nn::WeightOptions options = weight_options(dtype, std::move(progress));
  if (mflux_)
    options.rename = [blocks = config.res_blocks](const std::string& name) {
      return models::mflux_vae_name(name, blocks);
    };
  return load_component<models::VaeEncoder>(path_ / "vae", "vae", config, backend, std::move(options));
}

fs::path embedded_model_path(std::string_view name) {
  std::error_code error;
  const fs::path program = own_program();
  if (program.empty()) return {};
  const fs::path bin = program.parent_path();
  for (const fs::path& candidate : {bin / "../share/lockstep/models" / name, bin / "../../models" / name})
    if (fs::exists(candidate / "model_index.json", error)) return fs::weakly_canonical(candidate, error);
  return {};
}

}  // namespace lockstep
