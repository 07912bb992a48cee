// What a tap costs: nobody listening, a listener that wants nothing, one that looks at every tensor.
//   bench_taps [MODEL_FOLDER]
// One forward pass of a model's transformer (default: the embedded one), best of many, and the bare cost of one tap.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "base/error.h"
#include "pipeline/model_folder.h"

namespace {

using namespace lockstep;

class Listener : public Tap {
 public:
  explicit Listener(bool wants) : wants_(wants) {}
  bool wants(std::string_view) const override { return wants_; }
  std::optional<Tensor> offer(const TensorKey&, const Tensor&) override { return ++offered, std::nullopt; }
  int64_t offered = 0;

 private:
  bool wants_;
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Scopes as deep as the model's own, and the tap at their end, with nobody listening.
double bare_seconds(Backend& backend) {
  constexpr int kTaps = 1'000'000;
  const nn::Execution silent{.backend = backend};
  Tensor tensor = Tensor::zeros(DType::kF32, {1});
  double best = 1e9;
  for (int round = 0; round < 5; ++round)
    best = std::min(best, seconds_of([&] {
                      for (int i = 0; i < kTaps; ++i) {
                        const nn::Ctx model(silent, "transformer");
                        const nn::Ctx block = model.at("transformer_blocks", i & 63);
                        const nn::Ctx attention = block / "attn";
                        tensor = (attention / "to_q").tap(std::move(tensor));
                        asm volatile("" : : "r"(&tensor) : "memory");
                      }
                    }));
  return best / kTaps;
}

int run(const fs::path& path) {
  constexpr int64_t kSide = 8, kText = 16;
  constexpr int kRounds = 200;
  const auto backend = make_backend("cpu", 1);
  const ModelFolder folder = ModelFolder::open(path);
  const models::QwenImageTransformer transformer = folder.transformer(*backend, DType::kF32);
  const models::QwenImageConfig& config = transformer.config();
  const models::Rope rope = models::make_rope(config, {{1, kSide, kSide}}, kText);
  const Tensor latents = Tensor::zeros(DType::kF32, {1, kSide * kSide, config.in_channels});
  const Tensor text = Tensor::zeros(DType::kF32, {1, kText, config.text_width});
  Listener deaf(false), all(true);
  Tap* const listeners[] = {nullptr, &deaf, &all};
  double best[] = {1e9, 1e9, 1e9};
  for (int round = 0; round < kRounds; ++round)  // in turns, so that a slow spell hits all three
    for (int i = 0; i < 3; ++i) {
      const nn::Execution execution{.backend = *backend, .tap = listeners[i]};
      best[i] = std::min(best[i], seconds_of([&] {
                           transformer.forward({.latents = latents, .text = text, .timesteps = {0.5f}, .rope = &rope},
                                               nn::Ctx(execution, "transformer"));
                         }));
    }
  const double bare = bare_seconds(*backend);
  const double taps = static_cast<double>(all.offered) / kRounds;
  fmt::print("| one forward pass, {} layers of width {}, {} tokens, one thread | |\n|---|---|\n", config.layers,
             config.width(), kSide * kSide + kText);
  fmt::print("| nobody listens | {:.3f} ms |\n", best[0] * 1e3);
  fmt::print("| a listener that wants nothing | {:.3f} ms, {:+.1f} % |\n", best[1] * 1e3,
             100 * (best[1] / best[0] - 1));
  fmt::print("| a listener that is shown all {:.0f} tensors and keeps none | {:.3f} ms, {:+.1f} % |\n", taps,
             best[2] * 1e3, 100 * (best[2] / best[0] - 1));
  fmt::print(
      "| one tap with nobody listening, its four scopes included | {:.1f} ns; all of them {:.4f} % of the pass |\n",
      bare * 1e9, 100 * bare * taps / best[0]);
  return 0;
}

}  // namespace

int main(int count, char** values) {
  try {
    return run(count > 1 ? fs::path(values[1]) : embedded_model_path());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 3;
  }
}
