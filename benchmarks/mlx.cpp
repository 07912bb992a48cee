// A transformer of the released width on one backend, a pass for every line that is read: benchmarks/mlx.py takes
// turns.
//   bench_mlx DEVICE FOLDER ROWS COLUMNS DTYPE   FOLDER also has latents.npy [1, N, C] and text.npy [1, T, W]
// Prints a JSON line when it is ready and one a pass; the last result is left in FOLDER/DEVICE.npy.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "io/checkpoint.h"
#include "io/npy.h"
#include "models/qwen_image/transformer.h"

namespace {

using namespace lockstep;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void say(const Json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

int serve_passes(const std::string& device, const fs::path& folder, int rows, int columns, DType dtype) {
  const std::unique_ptr<Backend> backend = make_backend(device);
  const models::QwenImageConfig config = models::read_qwen_image_config(folder / "config.json");
  const double begin = seconds();
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const nn::Weights weights(checkpoint, *backend, {.dtype = dtype});
  const models::QwenImageTransformer model(weights, config);
  weights.finish("transformer");
  const Tensor latents = backend->upload(read_npy(folder / "latents.npy").to(dtype));
  const Tensor text = backend->upload(read_npy(folder / "text.npy").to(dtype));
  const models::Rope rope = models::uploaded(*backend, models::make_rope(config, {{1, rows, columns}}, text.dim(1)));
  const Tensor features = backend->upload(models::time_features({0.5f}));
  const nn::Execution execution{.backend = *backend, .dtype = dtype};
  backend->synchronize();
  say({{"device", backend->description()}, {"load_secs", seconds() - begin}});
  Tensor last;
  for (std::string line; std::getline(std::cin, line);) {
    const double start = seconds();
    last = model.forward({.latents = latents, .text = text, .rope = &rope, .features = &features},
                         nn::Ctx(execution, "transformer"));
    backend->synchronize();
    say({{"ms", 1e3 * (seconds() - start)}});
  }
  if (last.defined()) write_npy(folder / (device + ".npy"), last.host().contiguous().to(DType::kF32));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  try {
    const std::optional<DType> dtype = dtype_from_name(argv[5]);
    if (!dtype) return 2;
    return serve_passes(argv[1], argv[2], std::atoi(argv[3]), std::atoi(argv[4]), *dtype);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
