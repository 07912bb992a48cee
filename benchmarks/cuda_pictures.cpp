// Whole pictures on a machine that has a CUDA device.
//   bench_cuda_pictures time FOLDER SIZE STEPS ROUNDS   prompt to PNG with both guidance passes, the model loaded
//   bench_cuda_pictures streamed FOLDER SIZE STEPS DTYPE MB   with so many megabytes of weights held, against all of
//   them bench_cuda_pictures noise SEED DTYPE COUNT FILE     torch's CUDA numbers, as --noise torch-cuda draws them
// Prints JSON lines.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "io/image_codecs.h"
#include "pipeline/generate.h"

namespace {

using namespace lockstep;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Keeps every part that is loaded.
class KeepAll final : public PartShelf {
 public:
  Part part(const std::string& name, const std::function<Part()>& load) override {
    Part& kept = parts_[name];
    if (!kept) kept = load();
    return kept;
  }

 private:
  std::map<std::string, Part> parts_;
};

GenerateRequest request_of(int size, int steps) {
  GenerateRequest request;
  request.prompt = "a red circle left of a blue square";
  request.negative_prompt = " ";
  request.width = request.height = size;
  request.steps = steps;
  request.seed = 7;
  return request;
}

int time_pictures(const fs::path& folder, int size, int steps, int rounds) {
  const ModelFolder model = ModelFolder::open(folder);
  const std::unique_ptr<Backend> backend = make_backend("cuda");
  KeepAll shelf;
  GenerateSettings settings;
  settings.dtype = DType::kBF16;
  settings.shelf = &shelf;
  std::map<std::string, double> stages;
  std::string stage;
  double since = now();
  settings.progress = [&](std::string_view name, int64_t, int64_t) {
    const double at = now();
    if (!stage.empty()) stages[stage] += at - since;
    stage = name;
    since = at;
  };
  const auto draw = [&](int count) {
    const GeneratedImage image = generate(model, *backend, settings, {request_of(size, count)}).front();
    return encode_png(image.pixels.contiguous(), {}).size();
  };
  const double begin = now();
  draw(2);
  const double first = now() - begin;
  stages.clear();
  std::vector<double> ms;
  size_t bytes = 0;
  for (int i = 0; i < rounds; ++i) {
    const double from = now();
    bytes = draw(steps);
    ms.push_back(1e3 * (now() - from));
  }
  std::sort(ms.begin(), ms.end());
  Json by_stage = Json::object();
  for (const auto& [name, secs] : stages) by_stage[name] = 1e3 * secs / rounds;
  std::printf("%s\n", Json{{"work", "picture " + std::to_string(size) + ", " + std::to_string(steps) + " guided steps"},
                           {"median_ms", ms[ms.size() / 2]},
                           {"least_ms", ms.front()},
                           {"rounds", rounds},
                           {"stages_ms", by_stage},
                           {"png_bytes", bytes},
                           {"load_and_two_steps_secs", first},
                           {"device_gb", static_cast<double>(backend->memory().peak_bytes) / 1e9}}
                          .dump()
                          .c_str());
  return 0;
}

int streamed(const fs::path& folder, int size, int steps, DType dtype, double megabytes) {
  const ModelFolder model = ModelFolder::open(folder);
  const auto draw = [&](double held) {
    const std::unique_ptr<Backend> backend = make_backend("cuda");
    if (held > 0) backend->hold_weights(static_cast<uint64_t>(1e6 * held));
    GenerateSettings settings;
    settings.dtype = dtype;
    const double from = now();
    const Tensor pixels = generate(model, *backend, settings, {request_of(size, steps)}).front().pixels.contiguous();
    return std::tuple{pixels, now() - from, static_cast<double>(backend->most_weight_bytes()) / 1e6};
  };
  const auto [all, all_secs, all_held] = draw(0);
  const auto [some, some_secs, some_held] = draw(megabytes);
  int levels = 0;
  int64_t different = 0;
  for (int64_t i = 0; i < all.numel(); ++i) {
    const int apart = std::abs(static_cast<int>(all.data<uint8_t>()[i]) - some.data<uint8_t>()[i]);
    levels = std::max(levels, apart);
    different += apart != 0;
  }
  std::printf("%s\n", Json{{"work", "streamed " + std::to_string(size) + " " + std::string(dtype_name(dtype))},
                           {"pixels_that_differ", different},
                           {"levels", levels},
                           {"held_mb", some_held},
                           {"held_mb_resident", all_held},
                           {"secs", some_secs},
                           {"secs_resident", all_secs}}
                          .dump()
                          .c_str());
  return different == 0 ? 0 : 1;
}

int noise(uint64_t seed, DType dtype, int64_t count, const std::string& file) {
  const std::unique_ptr<Backend> backend = make_backend("cuda");
  Tensor drawn = backend->allocate(dtype, {count});
  backend->torch_cuda_normals(seed, drawn);
  const Tensor host = drawn.host();
  const auto bytes = host.contiguous_bytes();
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> a(argv + 1, argv + argc);
  try {
    if (a.size() == 5 && a[0] == "time") return time_pictures(a[1], std::stoi(a[2]), std::stoi(a[3]), std::stoi(a[4]));
    if (a.size() == 6 && a[0] == "streamed")
      return streamed(a[1], std::stoi(a[2]), std::stoi(a[3]), dtype_from_name(a[4]).value_or(DType::kF32),
                      std::stod(a[5]));
    if (a.size() == 5 && a[0] == "noise")
      return noise(std::stoull(a[1]), dtype_from_name(a[2]).value_or(DType::kF32), std::stoll(a[3]), a[4]);
    std::fprintf(stderr, "see the first lines of benchmarks/cuda_pictures.cpp\n");
    return 2;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return exit_status(e.code());
  }
}
