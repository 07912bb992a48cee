// Times one stage of the engine (transformer, edit_transformer, vae, vae_encode, text_encoder, vision) from a
// component's folder: driven by benchmarks/stages.py, which runs the official modules beside it and prints ratios.
//   bench_stages STAGE FOLDER DTYPE SIZE TEXT_TOKENS ROUNDS THREADS [QUANTIZE_BITS]
// Prints one JSON line: seconds of every round, of loading, floating point operations, peak memory, rate of one linear.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "models/qwen2_5_vl/vision_tower.h"
#include "models/qwen_image/transformer.h"
#include "models/qwen_vae/vae.h"

namespace {

using namespace lockstep;

Tensor random_tensor(DType dtype, const Shape& shape, float scale = 1) {
  Tensor values = Tensor::empty(DType::kF32, shape);
  std::minstd_rand engine(7);
  std::normal_distribution<float> normal;
  float* to = values.mutable_data<float>();
  for (int64_t i = 0; i < values.numel(); ++i) to[i] = scale * normal(engine);
  return values.to(dtype);
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Stage {
  std::function<void()> run;
  double operations = 0;  // one run: two per multiply-add of products and attention, nothing else counted
};

template <typename Model, typename Config>
std::shared_ptr<Model> load(const fs::path& folder, const Config& config, Backend& backend, nn::WeightOptions options) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const nn::Weights weights(checkpoint, backend, std::move(options));
  auto model = std::make_shared<Model>(weights, config);
  weights.finish(folder.filename().string());
  return model;
}

// With `pictures` condition pictures of the same size behind the one that is drawn.
Stage transformer(const fs::path& folder, const nn::Execution& execution, int64_t size, int64_t text, int bits,
                  int pictures = 0) {
  const models::QwenImageConfig config = models::read_qwen_image_config(folder / "config.json");
  const auto model = load<models::QwenImageTransformer>(folder, config, execution.backend,
                                                        {.dtype = execution.dtype, .linears = {.bits = bits}});
  const int64_t side = size / 16, image = side * side * (1 + pictures), all = image + text, width = config.width();
  const std::vector<models::Grid> grids(static_cast<size_t>(1 + pictures), models::Grid{1, side, side});
  const auto rope = std::make_shared<models::Rope>(models::make_rope(config, grids, text));
  const Tensor latents = random_tensor(execution.dtype, {1, image, config.in_channels});
  const Tensor prompt = random_tensor(execution.dtype, {1, text, config.text_width});
  const double layer = 24.0 * static_cast<double>(all * width) * static_cast<double>(width) +
                       4.0 * static_cast<double>(all * all) * static_cast<double>(width);
  return {
      [=, &execution] {
        model->forward(
            {.latents = latents, .text = prompt, .timesteps = {0.5f}, .rope = rope.get(), .target_tokens = side * side},
            nn::Ctx(execution, "transformer"));
      },
      layer * config.layers};
}

Stage vae(const fs::path& folder, const nn::Execution& execution, int64_t size) {
  const models::VaeConfig config = models::read_vae_config(folder / "config.json");
  const auto model = load<models::VaeDecoder>(folder, config, execution.backend, {.dtype = execution.dtype});
  const Tensor latents = random_tensor(execution.dtype, {1, config.latent_channels, 1, size / 8, size / 8});
  const double megapixels = static_cast<double>(size * size) / (1024.0 * 1024.0);
  return {
      [=, &execution] { models::decode_latents(*model, config, latents, std::nullopt, nn::Ctx(execution, "vae")); },
      4.71e12 * megapixels};  // of the released widths; the middle's attention is left out, it is not linear in size
}

Stage vae_encode(const fs::path& folder, const nn::Execution& execution, int64_t size) {
  const models::VaeConfig config = models::read_vae_config(folder / "config.json");
  const auto model = load<models::VaeEncoder>(folder, config, execution.backend, {.dtype = execution.dtype});
  const Tensor pixels = random_tensor(execution.dtype, {1, config.image_channels, 1, size, size}, 0.5f);
  const double megapixels = static_cast<double>(size * size) / (1024.0 * 1024.0);
  return {[=, &execution] { models::encode_image(*model, config, pixels, std::nullopt, nn::Ctx(execution, "vae")); },
          2.85e12 * megapixels};
}

Stage vision(const fs::path& folder, const nn::Execution& execution, int64_t size) {
  const models::VisionConfig config = models::read_vision_config(folder / "config.json");
  const auto model = load<models::VisionTower>(folder, config, execution.backend, {.dtype = execution.dtype});
  const int64_t unit = config.patch * config.merge, side = (size + unit / 2) / unit * config.merge;
  const std::vector<models::PatchGrid> grids{{side, side}};
  const Tensor patches = random_tensor(DType::kF32, {side * side, config.patch_values()});
  const double weights = static_cast<double>(config.width) * static_cast<double>(4 * config.width + 3 * config.hidden);
  return {[=, &execution] { model->forward(patches, grids, nn::Ctx(execution, "text_encoder")); },
          2.0 * static_cast<double>(side * side) * weights * config.layers +
              4.0 * static_cast<double>(side * side * side * side * config.width) *
                  static_cast<double>(config.full_attention.size())};
}

Stage text_encoder(const fs::path& folder, const nn::Execution& execution, int64_t tokens) {
  const models::TextConfig config = models::read_text_config(folder / "config.json");
  const auto model = load<models::TextModel>(folder, config, execution.backend, {.dtype = execution.dtype});
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back((i * 7919) % config.vocabulary);
  const double weights = static_cast<double>(config.width) *
                         static_cast<double>(2 * config.heads * config.head_width +
                                             2 * config.kv_heads * config.head_width + 3 * config.hidden);
  return {[=, &execution] { model->forward(ids, nn::Ctx(execution, "text_encoder")); },
          2.0 * static_cast<double>(tokens) * weights * config.layers};
}

// The rate of a lone product as wide as the real model's: what the stage is measured against.
double linear_rate(Backend& backend, DType dtype) {
  constexpr int64_t kRows = 1088, kOutputs = 12288, kInputs = 3072;
  LinearWeight weight;
  weight.weight = random_tensor(dtype, {kOutputs, kInputs}, 0.02f);
  backend.prepare(weight, dtype);
  const Tensor x = random_tensor(dtype, {kRows, kInputs});
  double best = 1e9;
  for (int i = 0; i < 6; ++i) best = std::min(best, seconds_of([&] { ops::linear(backend, x, weight); }));
  return 2.0 * kRows * kOutputs * kInputs / best;
}

int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 7)
    fail(Code::kUsage, "bench_stages", "too few arguments",
         {.expected = "STAGE FOLDER DTYPE SIZE TEXT_TOKENS ROUNDS THREADS [QUANTIZE_BITS]"});
  const std::string& stage_name = arguments[0];
  const fs::path folder = arguments[1];
  const int64_t size = std::stoll(arguments[3]), text = std::stoll(arguments[4]);
  const auto backend = make_backend("cpu", std::stoi(arguments[6]));
  const nn::Execution execution{.backend = *backend, .dtype = arguments[2] == "bf16" ? DType::kBF16 : DType::kF32};
  const int bits = arguments.size() > 7 ? std::stoi(arguments[7]) : 0;
  Stage stage;
  const double loading = seconds_of([&] {
    stage = stage_name == "transformer"        ? transformer(folder, execution, size, text, bits)
            : stage_name == "edit_transformer" ? transformer(folder, execution, size, text, bits, 1)
            : stage_name == "vae"              ? vae(folder, execution, size)
            : stage_name == "vae_encode"       ? vae_encode(folder, execution, size)
            : stage_name == "vision"           ? vision(folder, execution, size)
                                               : text_encoder(folder, execution, text);
  });
  Json rounds = Json::array();
  for (int i = 0; i < std::stoi(arguments[5]); ++i) rounds.push_back(seconds_of(stage.run));
  const int64_t peak = peak_bytes();  // before the lone product, which is not the stage's
  const Json result = {{"backend", backend->description()},
                       {"seconds", rounds},
                       {"loading", loading},
                       {"operations", stage.operations},
                       {"peak_bytes", peak},
                       {"linear_rate", linear_rate(*backend, execution.dtype)}};
  std::puts(result.dump().c_str());
  return 0;
}

}  // namespace

int main(int count, char** values) {
  try {
    return run({values + 1, values + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
