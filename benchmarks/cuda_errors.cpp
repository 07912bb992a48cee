// bf16 and fp8 against f32 on a machine that has a CUDA device, at the released size: the result of each block, and the
// velocity.
//   bench_cuda_errors FOLDER SIZE TEXT   FOLDER: what `bench_cuda_steps write` makes
// Prints JSON lines.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "io/checkpoint.h"
#include "models/qwen_image/transformer.h"
#include "tensor/convert.h"

namespace {

using namespace lockstep;

Tensor random_tensor(DType dtype, const Shape& shape) {
  Tensor values = Tensor::empty(DType::kF32, shape);
  std::minstd_rand engine(7);
  std::normal_distribution<float> normal;
  float* to = values.mutable_data<float>();
  for (int64_t i = 0; i < values.numel(); ++i) to[i] = normal(engine);
  return values.to(dtype);
}

double relative_error(const Tensor& expected, const Tensor& got) {
  const std::vector<double> e = to_doubles(expected), g = to_doubles(got);
  double wrong = 0, all = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    wrong += (e[i] - g[i]) * (e[i] - g[i]);
    all += e[i] * e[i];
  }
  return all > 0 ? std::sqrt(wrong / all) : std::sqrt(wrong);
}

// The image's rows as each block leaves them, and what the transformer gives.
class BlockResults final : public Tap {
 public:
  bool wants(std::string_view name) const override {
    return name == "transformer" || (name.find("transformer_blocks.") != std::string_view::npos &&
                                     std::count(name.begin(), name.end(), '.') == 3 && name.ends_with(".1"));
  }
  std::optional<Tensor> offer(const TensorKey&, const Tensor& tensor) override {
    results.push_back(tensor.host().clone());
    return std::nullopt;
  }
  std::vector<Tensor> results;
};

int errors(const fs::path& folder, int64_t size, int64_t text) {
  const models::QwenImageConfig config = models::read_qwen_image_config(folder / "config.json");
  const int64_t side = size / 16;
  const auto run = [&](DType dtype, bool fp8) {
    const std::unique_ptr<Backend> backend = make_backend("cuda");
    const Checkpoint checkpoint = Checkpoint::open(folder);
    const nn::Weights weights(checkpoint, *backend, {.dtype = dtype, .linears = {.fp8 = fp8}});
    const models::QwenImageTransformer model(weights, config);
    weights.finish("transformer");
    const models::Rope rope = models::uploaded(*backend, models::make_rope(config, {{1, side, side}}, text));
    // The same values for all: those of bf16.
    const auto input = [&](const Shape& shape) {
      return backend->upload(random_tensor(DType::kBF16, shape).to(dtype));
    };
    BlockResults tap;
    const nn::Execution execution{.backend = *backend, .dtype = dtype, .tap = &tap};
    const nn::Ctx ctx(execution, "transformer");
    const Tensor times = backend->upload(models::time_features({0.5f}));
    const Tensor ahead = model.modulations(times, ctx);
    const Tensor velocity = model.forward({.latents = input({1, side * side, config.in_channels}),
                                           .text = input({1, text, config.text_width}),
                                           .rope = &rope,
                                           .modulations = &ahead},
                                          ctx);
    tap.results.push_back(velocity.host().clone());
    return tap.results;
  };
  const std::vector<Tensor> exact = run(DType::kF32, false);
  for (const bool fp8 : {false, true}) {
    const std::vector<Tensor> got = run(DType::kBF16, fp8);
    std::vector<double> error;
    for (size_t i = 0; i < exact.size(); ++i) error.push_back(relative_error(exact[i], got[i]));
    std::printf("%s\n", Json{{"work", "errors " + std::to_string(size) + (fp8 ? " fp8" : " bf16")},
                             {"results", error.size()},
                             {"first", error.front()},
                             {"middle", error[error.size() / 2]},
                             {"worst", *std::max_element(error.begin(), error.end())},
                             {"velocity", error.back()}}
                            .dump()
                            .c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "see the first lines of benchmarks/cuda_errors.cpp\n");
    return 2;
  }
  try {
    return errors(argv[1], std::stoi(argv[2]), std::stoi(argv[3]));
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return exit_status(e.code());
  }
}
