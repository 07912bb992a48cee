// The CUDA backend on a machine that has a device: every tap against the reference, and how long a step takes.
//   bench_cuda_steps taps MODEL SIZE STEPS DTYPE [JUDGE [JUDGE_DTYPE]]   every tap of a small picture, CUDA against
//                        another backend; DTYPE fp8: bf16 with products in fp8
//   bench_cuda_steps write FOLDER LAYERS                      a transformer of the released width with random weights
//   bench_cuda_steps step FOLDER SIZE TEXT DTYPE ROUNDS [BITS] [BATCH] [GB]   BITS 88: fp8; GB: of weights held
//   bench_cuda_steps load FOLDER                              where the time of loading goes
//   bench_cuda_steps kernels IMAGE_TOKENS TEXT_TOKENS DTYPE   one layer's kernels alone
//   bench_cuda_steps write-text FOLDER                        a text encoder of the released size, random
//   bench_cuda_steps vae FOLDER SIZE DTYPE ROUNDS  |  text FOLDER TOKENS DTYPE ROUNDS
// Prints JSON lines.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "io/checkpoint.h"
#include "models/qwen2_5_vl/text_model.h"
#include "models/qwen_image/transformer.h"
#include "models/qwen_vae/vae.h"
#include "pipeline/generate.h"
#include "tensor/convert.h"

namespace {

using namespace lockstep;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Tensor random_tensor(DType dtype, const Shape& shape, float scale = 1) {
  Tensor values = Tensor::empty(DType::kF32, shape);
  std::minstd_rand engine(7);
  std::normal_distribution<float> normal;
  float* to = values.mutable_data<float>();
  for (int64_t i = 0; i < values.numel(); ++i) to[i] = scale * normal(engine);
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

DType dtype_of(const std::string& name) {
  const std::optional<DType> dtype = dtype_from_name(name);
  if (!dtype) fail(Code::kUsage, "bench", "no such dtype", {.got = name});
  return *dtype;
}

class Collecting final : public Tap {
 public:
  bool wants(std::string_view) const override { return true; }
  std::optional<Tensor> offer(const TensorKey& key, const Tensor& tensor) override {
    TensorKey counted = key;
    counted.hit = hits_[key]++;
    order.push_back(counted);
    tensors[counted] = tensor.clone();
    return std::nullopt;
  }
  std::map<TensorKey, Tensor> tensors;
  std::vector<TensorKey> order;

 private:
  std::map<TensorKey, int> hits_;
};

int taps(const fs::path& folder, int size, int steps, const std::string& format, const std::string& judge_name,
         DType judge_dtype) {
  const bool fp8 = format == "fp8";
  const DType dtype = fp8 ? DType::kBF16 : dtype_of(format);
  const ModelFolder model = ModelFolder::open(folder);
  GenerateRequest request;
  request.prompt = "a red circle left of a blue square";
  request.negative_prompt = " ";
  request.width = request.height = size;
  request.steps = steps;
  request.seed = 7;
  const auto run = [&](const std::string& device, Collecting* tap) {
    const std::unique_ptr<Backend> backend = make_backend(device);
    GenerateSettings settings;
    settings.dtype = device == judge_name ? judge_dtype : dtype;
    settings.linears.fp8 = fp8 && device != judge_name;
    settings.tap = tap;
    return generate(model, *backend, settings, {request}).front().pixels;
  };
  Collecting expected, got;
  const Tensor judge = run(judge_name, &expected), picture = run("cuda", &got);
  double worst = 0, sum = 0;
  std::string where;
  size_t compared = 0;
  for (const TensorKey& key : expected.order) {
    const auto found = got.tensors.find(key);
    if (found == got.tensors.end() || key.name == "image") continue;
    const double error = relative_error(expected.tensors[key], found->second);
    ++compared;
    sum += error;
    if (!(error <= worst)) {
      worst = error;
      where = to_string(key);
    }
  }
  const auto levels = [&](const Tensor& other) {
    int most = 0;
    for (int64_t i = 0; i < judge.numel(); ++i)
      most = std::max(most, std::abs(static_cast<int>(judge.data<uint8_t>()[i]) - other.data<uint8_t>()[i]));
    return most;
  };
  // Without a listener: fused kernels and the captured graph.
  const Tensor quick = run("cuda", nullptr).contiguous();
  std::printf("%s\n", Json{{"taps", compared},
                           {"of", expected.order.size()},
                           {"dtype", format},
                           {"judge", judge_name + " " + std::string(dtype_name(judge_dtype))},
                           {"worst", worst},
                           {"mean", sum / static_cast<double>(compared)},
                           {"where", where},
                           {"levels", levels(picture.contiguous())},
                           {"levels_unheard", levels(quick)}}
                          .dump()
                          .c_str());
  return 0;
}

using Named = std::vector<std::pair<std::string, Shape>>;

// A bf16 safetensors file whose values repeat one block of random numbers.
void write_random(const fs::path& folder, const std::string& file_name, const Named& tensors) {
  fs::create_directories(folder);
  Json header = Json::object();
  int64_t at = 0;
  for (const auto& [name, shape] : tensors) {
    const int64_t bytes = 2 * checked_numel(shape);
    header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const fs::path path = folder / file_name;
  const int file = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
  if (file < 0) fail(Code::kIo, "write", path.string() + " cannot be made");
  const uint64_t size = text.size();
  if (::pwrite(file, &size, 8, 0) != 8 || ::pwrite(file, text.data(), text.size(), 8) < 0)
    fail(Code::kIo, "write", path.string() + " cannot be written");
  const Tensor block = random_tensor(DType::kBF16, {int64_t{4} << 20}, 0.02f);
  const int64_t piece = static_cast<int64_t>(block.bytes()), begin = 8 + static_cast<int64_t>(text.size());
#pragma omp parallel for schedule(dynamic)
  for (int64_t offset = 0; offset < at; offset += piece)
    if (::pwrite(file, block.strided_data(), static_cast<size_t>(std::min(piece, at - offset)), begin + offset) < 0)
      std::abort();
  ::close(file);
  std::printf("%s\n", Json{{"written_bytes", at}}.dump().c_str());
}

int write_text(const fs::path& folder) {
  const int64_t d = 3584, hidden = 18944, heads = 28 * 128, groups = 4 * 128, vocabulary = 152064;
  Named tensors{{"model.embed_tokens.weight", {vocabulary, d}}, {"model.norm.weight", {d}}};
  for (int i = 0; i < 28; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    tensors.push_back({layer + "input_layernorm.weight", {d}});
    tensors.push_back({layer + "post_attention_layernorm.weight", {d}});
    for (const auto& [name, out] : {std::pair<const char*, int64_t>{"q", heads}, {"k", groups}, {"v", groups}}) {
      tensors.push_back({layer + "self_attn." + name + "_proj.weight", {out, d}});
      tensors.push_back({layer + "self_attn." + name + "_proj.bias", {out}});
    }
    tensors.push_back({layer + "self_attn.o_proj.weight", {d, heads}});
    tensors.push_back({layer + "mlp.gate_proj.weight", {hidden, d}});
    tensors.push_back({layer + "mlp.up_proj.weight", {hidden, d}});
    tensors.push_back({layer + "mlp.down_proj.weight", {d, hidden}});
  }
  write_random(folder, "model.safetensors", tensors);
  std::ofstream(folder / "config.json") << Json{
      {"model_type", "qwen2_5_vl"}, {"num_hidden_layers", 28},  {"hidden_size", d},
      {"num_attention_heads", 28},  {"num_key_value_heads", 4}, {"intermediate_size", hidden},
      {"vocab_size", vocabulary},   {"rms_norm_eps", 1e-6},     {"rope_theta", 1e6}};
  return 0;
}

int write_weights(const fs::path& folder, int layers) {
  const int64_t d = 3072;
  Named tensors;
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    tensors.push_back({name + ".weight", {out, in}});
    tensors.push_back({name + ".bias", {out}});
  };
  linear("img_in", d, 64);
  tensors.push_back({"txt_norm.weight", {3584}});
  linear("txt_in", d, 3584);
  linear("time_text_embed.timestep_embedder.linear_1", d, 256);
  linear("time_text_embed.timestep_embedder.linear_2", d, d);
  linear("norm_out.linear", 2 * d, d);
  linear("proj_out", 64, d);
  for (int i = 0; i < layers; ++i) {
    const std::string block = "transformer_blocks." + std::to_string(i) + ".";
    linear(block + "img_mod.1", 6 * d, d);
    linear(block + "txt_mod.1", 6 * d, d);
    for (const char* name :
         {"to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "to_out.0", "to_add_out"})
      linear(block + "attn." + name, d, d);
    for (const char* name : {"norm_q", "norm_k", "norm_added_q", "norm_added_k"})
      tensors.push_back({block + "attn." + name + ".weight", {128}});
    for (const char* stream : {"img_mlp", "txt_mlp"}) {
      linear(block + stream + ".net.0.proj", 4 * d, d);
      linear(block + stream + ".net.2", d, 4 * d);
    }
  }
  write_random(folder, "diffusion_pytorch_model.safetensors", tensors);
  std::ofstream(folder / "config.json") << Json{{"_class_name", "QwenImageTransformer2DModel"},
                                                {"num_layers", layers},
                                                {"num_attention_heads", 24},
                                                {"attention_head_dim", 128},
                                                {"joint_attention_dim", 3584},
                                                {"patch_size", 2},
                                                {"in_channels", 64},
                                                {"out_channels", 16},
                                                {"axes_dims_rope", {16, 56, 56}}};
  return 0;
}

Json timed(Backend& backend, int rounds, const std::function<void()>& work) {
  std::vector<double> ms;
  for (int i = 0; i < 4; ++i) work();  // the first tunes, the second captures
  backend.synchronize();
  for (int i = 0; i < rounds; ++i) {
    const double begin = now();
    work();
    backend.synchronize();
    ms.push_back(1e3 * (now() - begin));
  }
  std::sort(ms.begin(), ms.end());
  return {{"median_ms", ms[ms.size() / 2]}, {"least_ms", ms.front()}, {"most_ms", ms.back()}, {"rounds", rounds}};
}

int step(const fs::path& folder, int64_t size, int64_t text, DType dtype, int rounds, int bits, int64_t batch,
         double held_gb) {
  const std::unique_ptr<Backend> backend = make_backend("cuda");
  if (held_gb > 0) backend->hold_weights(static_cast<uint64_t>(1e9 * held_gb));
  const models::QwenImageConfig config = models::read_qwen_image_config(folder / "config.json");
  const double begin = now();
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const nn::Weights weights(checkpoint, *backend,
                            {.dtype = dtype, .linears = {.bits = bits == 88 ? 0 : bits, .fp8 = bits == 88}});
  const models::QwenImageTransformer model(weights, config);
  weights.finish("transformer");
  backend->synchronize();
  const double load_secs = now() - begin;
  const int64_t side = size / 16, image = side * side;
  const models::Rope rope = models::uploaded(*backend, models::make_rope(config, {{1, side, side}}, text));
  const Tensor latents = backend->upload(random_tensor(dtype, {batch, image, config.in_channels}));
  const Tensor prompt = backend->upload(random_tensor(dtype, {batch, text, config.text_width}));
  const nn::Execution execution{.backend = *backend, .dtype = dtype};
  const auto body = [&](const std::vector<Tensor>& in) {
    return model.forward({.latents = in[0], .text = prompt, .rope = &rope, .modulations = &in[1]},
                         nn::Ctx(execution, "transformer"));
  };
  // As the pipeline makes them: for eight steps at a time.
  constexpr int kStepsAhead = 8;
  const Tensor times =
      backend->upload(models::time_features(std::vector<float>(kStepsAhead * static_cast<size_t>(batch), 0.5f)));
  Tensor ahead;
  const Json made_ahead =
      timed(*backend, 5, [&] { ahead = model.modulations(times, nn::Ctx(execution, "transformer")); });
  const Tensor features = ahead.slice(0, 0, batch);
  const std::unique_ptr<Repeated> repeated = backend->repeated(body);
  Tensor last;
  Json graph = timed(*backend, rounds, [&] { last = repeated->run({latents, features}); });
  const std::vector<double> captured = to_doubles(last.host());
  const Json eager = timed(*backend, std::min(rounds, 5), [&] { last = body({latents, features}); });
  double difference = 0;
  const std::vector<double> direct = to_doubles(last.host());
  for (size_t i = 0; i < direct.size(); ++i) difference = std::max(difference, std::fabs(direct[i] - captured[i]));
  graph["eager_median_ms"] = eager["median_ms"];
  graph["modulations_ms_a_step"] = made_ahead["median_ms"].get<double>() / kStepsAhead;
  graph["largest_difference_to_eager"] = difference;
  graph["finite"] = std::all_of(direct.begin(), direct.end(), [](double x) { return std::isfinite(x); });
  graph["load_secs"] = load_secs;
  graph["load_gb_per_sec"] =
      static_cast<double>(fs::file_size(folder / "diffusion_pytorch_model.safetensors")) / 1e9 / load_secs;
  graph["device_gb"] = static_cast<double>(backend->memory().peak_bytes) / 1e9;
  backend->start_profile();
  for (int i = 0; i < 3; ++i) body({latents, features});
  Json kernels = Json::object();
  for (const KernelTime& kernel : backend->end_profile())
    kernels[kernel.name] = {{"calls", kernel.calls / 3}, {"ms", kernel.ms / 3}};
  graph["kernels"] = kernels;
  if (held_gb > 0) graph["held_gb"] = static_cast<double>(backend->most_weight_bytes()) / 1e9;
  graph["work"] = "step " + std::to_string(size) + " " + std::string(dtype_name(dtype)) + " bits " +
                  std::to_string(bits) + " batch " + std::to_string(batch);
  std::printf("%s\n", graph.dump().c_str());
  return 0;
}

// Where the time of loading goes: device memory, the first copy from a mapped file, one whose pages are mapped already,
// letting go of the pages.
int load_parts(const fs::path& folder) {
  const std::unique_ptr<Backend> backend = make_backend("cuda");
  const Checkpoint checkpoint = Checkpoint::open(folder);
  std::vector<Tensor> mapped, device;
  double bytes = 0;
  for (const TensorInfo& info : checkpoint.tensors()) {
    mapped.push_back(checkpoint.tensor(info.name));
    bytes += static_cast<double>(mapped.back().bytes());
  }
  const auto rate = [&](const std::function<void(size_t)>& work) {
    backend->synchronize();
    const double begin = now();
    for (size_t i = 0; i < mapped.size(); ++i) work(i);
    backend->synchronize();
    return bytes / 1e9 / (now() - begin);
  };
  Json result{{"work", "load"}};
  result["allocate_gb_per_sec"] =
      rate([&](size_t i) { device.push_back(backend->allocate(mapped[i].dtype(), mapped[i].shape())); });
  device.clear();
  result["first_copy_gb_per_sec"] = rate([&](size_t i) { backend->upload(mapped[i]); });
  result["second_copy_gb_per_sec"] = rate([&](size_t i) { backend->upload(mapped[i]); });
  result["drop_gb_per_sec"] = rate([&](size_t i) { checkpoint.drop_pages(checkpoint.tensors()[i].name); });
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

// Kernels alone, at the shapes of one layer.
int kernels(int64_t image, int64_t text, DType dtype) {
  const std::unique_ptr<Backend> made = make_backend("cuda");
  Backend& backend = *made;
  const int64_t d = 3072, all = image + text;
  const auto device = [&](const Shape& shape, float scale = 1) {
    return backend.upload(random_tensor(dtype, shape, scale));
  };
  const auto weight = [&](int64_t n, int64_t k) {
    LinearWeight w;
    w.weight = device({n, k}, 0.02f);
    w.bias = device({n}, 0.02f);
    return w;
  };
  const Tensor x = device({1, image, d}), wide = device({1, image, 4 * d}), t = device({1, text, d}),
               one = device({1, d}), y = device({1, image, d});
  const LinearWeight square = weight(d, d), up = weight(4 * d, d), down = weight(d, 4 * d), six = weight(6 * d, d);
  const Tensor heads = x.reshape({1, image, 24, 128}), q = device({1, all, 24, 128}), norm = device({128});
  const Tensor cos = backend.upload(random_tensor(DType::kF32, {image, 64})), sin = cos;
  Tensor out = backend.allocate(dtype, {1, image, d}), out_wide = backend.allocate(dtype, {1, image, 4 * d}),
         out_t = backend.allocate(dtype, {1, text, d}), out_tw = backend.allocate(dtype, {1, text, 4 * d}),
         out_six = backend.allocate(dtype, {1, 6 * d}), joint = backend.allocate(dtype, {1, all, 24, 128});
  const auto show = [&](const char* name, const std::function<void()>& work) {
    for (int i = 0; i < 3; ++i) work();
    backend.synchronize();
    constexpr int kTimes = 30;
    const double begin = now();
    for (int i = 0; i < kTimes; ++i) work();
    backend.synchronize();
    std::printf("%-28s %8.1f us\n", name, 1e6 * (now() - begin) / kTimes);
  };
  show("linear d to d", [&] { backend.linear({.x = x, .weight = square, .out = out}); });
  show("linear d to 4d, gelu",
       [&] { backend.linear({.x = x, .weight = up, .out = out_wide, .activation = Activation::kGeluTanh}); });
  show("linear 4d to d", [&] { backend.linear({.x = wide, .weight = down, .out = out}); });
  show("linear 4d to d, gated",
       [&] { backend.linear({.x = wide, .weight = down, .out = out, .residual = &y, .gate = &one}); });
  show("linear d to d, gated",
       [&] { backend.linear({.x = x, .weight = square, .out = out, .residual = &y, .gate = &one}); });
  show("text d to d", [&] { backend.linear({.x = t, .weight = square, .out = out_t}); });
  show("text d to 4d",
       [&] { backend.linear({.x = t, .weight = up, .out = out_tw, .activation = Activation::kGeluTanh}); });
  show("modulation d to 6d", [&] { backend.linear({.x = one, .weight = six, .out = out_six}); });
  show("norm and modulate", [&] { backend.layer_norm({.x = x, .out = out, .scale = &one, .shift = &one}); });
  Tensor rotated = joint.slice(1, text, all);
  show("head norm and rotation", [&] {
    backend.head_norm_rope(
        {.x = heads, .out = rotated, .weight = &norm, .style = RopeStyle::kInterleaved, .cos = &cos, .sin = &sin});
  });
  show("attention", [&] { backend.attention({.q = q, .k = q, .v = q, .out = joint, .scale = 0.088f}); });
  show("gated residual", [&] { backend.add_gated({.x = x, .gate = one, .y = y, .out = out}); });
  show("copy", [&] { backend.copy({.from = x, .to = out}); });
  return 0;
}

template <typename Model, typename Config>
std::unique_ptr<Model> load(const fs::path& folder, const Config& config, Backend& backend, DType dtype) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const nn::Weights weights(checkpoint, backend, {.dtype = dtype});
  auto model = std::make_unique<Model>(weights, config);
  weights.finish(folder.filename().string());
  return model;
}

int vae(const fs::path& folder, int64_t size, DType dtype, int rounds) {
  const std::unique_ptr<Backend> backend = make_backend("cuda");
  const models::VaeConfig config = models::read_vae_config(folder / "config.json");
  const auto model = load<models::VaeDecoder>(folder, config, *backend, dtype);
  const Tensor latents = backend->upload(random_tensor(dtype, {1, config.latent_channels, 1, size / 8, size / 8}));
  const nn::Execution execution{.backend = *backend, .dtype = dtype};
  Tensor out;
  Json result = timed(*backend, rounds, [&] {
    out = models::decode_latents(*model, config, latents, std::nullopt, nn::Ctx(execution, "vae"));
  });
  backend->start_profile();
  models::decode_latents(*model, config, latents, std::nullopt, nn::Ctx(execution, "vae"));
  for (const KernelTime& kernel : backend->end_profile())
    result["kernels"][kernel.name] = {{"calls", kernel.calls}, {"ms", kernel.ms}};
  result["work"] = "vae " + std::to_string(size) + " " + std::string(dtype_name(dtype));
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

int text(const fs::path& folder, int64_t tokens, DType dtype, int rounds) {
  const std::unique_ptr<Backend> backend = make_backend("cuda");
  const models::TextConfig config = models::read_text_config(folder / "config.json");
  const auto model = load<models::TextModel>(folder, config, *backend, dtype);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back((i * 7919) % config.vocabulary);
  const nn::Execution execution{.backend = *backend, .dtype = dtype};
  Tensor out;
  Json result = timed(*backend, rounds, [&] { out = model->forward(ids, nn::Ctx(execution, "text_encoder")); });
  backend->start_profile();
  model->forward(ids, nn::Ctx(execution, "text_encoder"));
  for (const KernelTime& kernel : backend->end_profile())
    result["kernels"][kernel.name] = {{"calls", kernel.calls}, {"ms", kernel.ms}};
  result["work"] = "text " + std::to_string(tokens) + " " + std::string(dtype_name(dtype));
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> a(argv + 1, argv + argc);
  try {
    const auto number = [&](size_t i, int otherwise) { return i < a.size() ? std::stoi(a[i]) : otherwise; };
    if (a.size() >= 5 && a[0] == "taps")
      return taps(a[1], std::stoi(a[2]), std::stoi(a[3]), a[4], a.size() > 5 ? a[5] : "reference",
                  dtype_of(a.size() > 6    ? a[6]
                           : a[4] == "fp8" ? "f32"
                                           : a[4]));
    if (a.size() >= 3 && a[0] == "write") return write_weights(a[1], std::stoi(a[2]));
    if (a.size() >= 6 && a[0] == "step")
      return step(a[1], std::stoi(a[2]), std::stoi(a[3]), dtype_of(a[4]), std::stoi(a[5]), number(6, 0), number(7, 1),
                  number(8, 0));
    if (a.size() >= 4 && a[0] == "kernels") return kernels(std::stoi(a[1]), std::stoi(a[2]), dtype_of(a[3]));
    if (a.size() >= 2 && a[0] == "load") return load_parts(a[1]);
    if (a.size() >= 2 && a[0] == "write-text") return write_text(a[1]);
    if (a.size() >= 5 && a[0] == "vae") return vae(a[1], std::stoi(a[2]), dtype_of(a[3]), std::stoi(a[4]));
    if (a.size() >= 5 && a[0] == "text") return text(a[1], std::stoi(a[2]), dtype_of(a[3]), std::stoi(a[4]));
    std::fprintf(stderr, "see the first lines of benchmarks/cuda_steps.cpp\n");
    return 2;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return exit_status(e.code());
  }
}
