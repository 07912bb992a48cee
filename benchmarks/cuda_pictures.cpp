// Whole pictures on a machine that has a CUDA device.
//   bench_cuda_pictures time FOLDER SIZE STEPS ROUNDS   prompt to PNG with both guidance passes, the model loaded
//   bench_cuda_pictures streamed FOLDER SIZE STEPS DTYPE MB   with so many megabytes of weights held, against all of
//   them bench_cuda_pictures recorded FOLDER SIZE STEPS ROUNDS HOME   every tap recorded, statistics only, against
//   nothing bench_cuda_pictures records FOLDER SIZE STEPS DTYPE HOME   those statistics against the host's, record by
//   record bench_cuda_pictures noise SEED DTYPE COUNT FILE     torch's CUDA numbers, as --noise torch-cuda draws them
// Prints JSON lines.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "capture/recording_tap.h"
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

std::unique_ptr<RunWriter> statistics_writer(const fs::path& home, const std::string& name) {
  RunOptions options;
  options.home = home;
  options.name = name;
  options.stats_only = true;
  return RunWriter::create(options);
}

int recorded(const fs::path& folder, int size, int steps, int rounds, const fs::path& home) {
  const ModelFolder model = ModelFolder::open(folder);
  const std::unique_ptr<Backend> backend = make_backend("cuda");
  KeepAll shelf;
  const auto draw = [&](Tap* tap) {
    GenerateSettings settings;
    settings.dtype = DType::kBF16;
    settings.shelf = &shelf;
    settings.tap = tap;
    return generate(model, *backend, settings, {request_of(size, steps)}).front().pixels.contiguous();
  };
  draw(nullptr);
  std::vector<double> plain, heard;
  WriterCounts counts;
  bool same = true;
  for (int i = 0; i < rounds; ++i) {
    double from = now();
    const Tensor quick = draw(nullptr);
    plain.push_back(1e3 * (now() - from));
    from = now();
    const std::unique_ptr<RunWriter> writer = statistics_writer(home, "recorded");
    RecordingTap tap(*writer, {});
    const Tensor slow = draw(&tap);
    writer->close();
    heard.push_back(1e3 * (now() - from));
    counts = writer->counts();
    const auto a = quick.contiguous_bytes(), b = slow.contiguous_bytes();
    same = same && std::equal(a.begin(), a.end(), b.begin());
  }
  std::sort(plain.begin(), plain.end());
  std::sort(heard.begin(), heard.end());
  Json kernels = Json::object();  // of one more, each with the few microseconds that measuring takes
  {
    const std::unique_ptr<RunWriter> writer = statistics_writer(home, "recorded");
    RecordingTap tap(*writer, {});
    backend->start_profile();
    draw(&tap);
    for (const KernelTime& kernel : backend->end_profile())
      kernels[kernel.name] = {{"calls", kernel.calls}, {"ms", kernel.ms}};
  }
  const double without = plain[plain.size() / 2], with = heard[heard.size() / 2];
  std::printf("%s\n",
              Json{{"work", "recorded " + std::to_string(size) + ", " + std::to_string(steps) + " guided steps"},
                   {"plain_ms", without},
                   {"recorded_ms", with},
                   {"times", with / without},
                   {"records", counts.records},
                   {"lost", counts.lost},
                   {"same_picture", same},
                   {"rounds", rounds},
                   {"kernels", kernels}}
                  .dump()
                  .c_str());
  return 0;
}

// Hands every tensor on as a host tensor.
class Downloading final : public Tap, public InputTap {
 public:
  explicit Downloading(RecordingTap& tap) : tap_(tap) {}
  bool wants(std::string_view name) const override { return tap_.wants(name); }
  std::optional<Tensor> offer(const TensorKey& key, const Tensor& tensor) override { return tap_.offer(key, tensor); }
  std::optional<Tensor> offer_stage(const TensorKey& key, const Tensor& tensor) override {
    return tap_.offer_stage(key, tensor);
  }
  void offer_input(const TensorKey& key, const Tensor& tensor) override { tap_.offer_input(key, tensor); }

 private:
  RecordingTap& tap_;
};

int records(const fs::path& folder, int size, int steps, DType dtype, const fs::path& home) {
  const ModelFolder model = ModelFolder::open(folder);
  const std::unique_ptr<Backend> backend = make_backend("cuda");
  const auto run = [&](const std::string& name, bool there) {
    const std::unique_ptr<RunWriter> writer = statistics_writer(home, name);
    RecordingTap tap(*writer, {});
    Downloading downloading(tap);
    GenerateSettings settings;
    settings.dtype = dtype;
    settings.tap = there ? static_cast<Tap*>(&tap) : &downloading;
    generate(model, *backend, settings, {request_of(size, steps)});
    writer->close();
    return Run::open("latest:" + name, home);
  };
  const Run host = run("host", false), device = run("device", true);
  size_t checksums = 0, statistics = 0, large = 0;
  for (size_t i = 0; i < host.records().size() && i < device.records().size(); ++i) {
    const Record &a = host.records()[i], &b = device.records()[i];
    checksums += a.checksum == b.checksum && a.key == b.key && a.preview.size() == b.preview.size();
    large += checked_numel(a.shape) * static_cast<int64_t>(dtype_bytes(*a.dtype)) > 65536;
    if (!a.stats || !b.stats) continue;
    const double scale = std::isfinite(a.stats->absmax) ? a.stats->absmax : 1;
    const auto near = [&](double x, double y) {
      return (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= 1e-9 * scale;
    };
    statistics += near(a.stats->mean, b.stats->mean) && near(a.stats->std, b.stats->std) &&
                  near(a.stats->min, b.stats->min) && near(a.stats->max, b.stats->max) &&
                  a.stats->nan == b.stats->nan && a.stats->inf == b.stats->inf && a.stats->zero == b.stats->zero &&
                  a.stats->denormal == b.stats->denormal;
  }
  const size_t count = host.records().size();
  std::printf("%s\n", Json{{"work", "records"},
                           {"dtype", dtype_name(dtype)},
                           {"of_host", count},
                           {"of_device", device.records().size()},
                           {"same_checksum", checksums},
                           {"same_statistics", statistics},
                           {"beyond_64_kb", large}}
                          .dump()
                          .c_str());
  return count == device.records().size() && checksums == count && statistics == count ? 0 : 1;
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
    if (a.size() == 6 && a[0] == "recorded")
      return recorded(a[1], std::stoi(a[2]), std::stoi(a[3]), std::stoi(a[4]), a[5]);
    if (a.size() == 6 && a[0] == "records")
      return records(a[1], std::stoi(a[2]), std::stoi(a[3]), dtype_from_name(a[4]).value_or(DType::kF32), a[5]);
    if (a.size() == 5 && a[0] == "noise")
      return noise(std::stoull(a[1]), dtype_from_name(a[2]).value_or(DType::kF32), std::stoll(a[3]), a[4]);
    std::fprintf(stderr, "see the first lines of benchmarks/cuda_pictures.cpp\n");
    return 2;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return exit_status(e.code());
  }
}
