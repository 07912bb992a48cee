// Runs the transformer of stable-diffusion.cpp on tensors of a reference run. Its headers are included as they come;
// only the sizes of a small model are given, through the runner's own structures.
//   drive_stable_diffusion_cpp WEIGHTS INPUTS CALLS
// WEIGHTS and INPUTS are written by prepare_stable_diffusion_cpp.py: "name rank sizes...\n" and then the values, f32.
#include "ggml-backend.h"
#include "ggml.h"

#include <lockstep/ggml.hpp>

#include <cmath>
#include <fstream>
#include <iostream>
#include <sstream>

static lockstep::GgmlRecorder recorder("stable_diffusion_cpp");
static ggml_status recorded_compute(ggml_backend_t backend, ggml_cgraph* graph) {
  return recorder.compute(backend, graph);
}
#define ggml_backend_graph_compute recorded_compute  // the headers below compute through this

#ifdef LOCKSTEP_AS_OFFICIAL
// ggml looks this function up in a table of f16; the official model computes it.
static void gelu_of_part(ggml_tensor* out, const ggml_tensor* x, int thread, int threads, void*) {
  const float* from = static_cast<const float*>(x->data);
  float* to = static_cast<float*>(out->data);
  const int64_t count = ggml_nelements(x);
  for (int64_t i = count * thread / threads; i < count * (thread + 1) / threads; ++i)
    to[i] = 0.5f * from[i] * (1 + std::tanh(0.79788456f * from[i] * (1 + 0.044715f * from[i] * from[i])));
}
#define ggml_gelu_inplace(context, x) ggml_map_custom1_inplace(context, x, gelu_of_part, GGML_N_TASKS_MAX, nullptr)
#endif

#include "rope.hpp"
#ifdef LOCKSTEP_AS_OFFICIAL
// Text stands elsewhere in the official model: behind half the picture's longer side, one apart.
namespace Rope {
inline std::vector<float> official_pe(int h, int w, int patch, int bs, int text, const std::vector<ggml_tensor*>& refs,
                                      bool increase, int theta, bool, bool, const std::vector<int>& axes) {
  auto ids = gen_qwen_image_ids(h, w, patch, bs, text, refs, increase);
  const int start = std::max((h / patch) / 2, (w / patch) / 2);
  for (int j = 0; j < text; ++j) ids[j] = {float(start + j), float(start + j), float(start + j)};
  return embed_nd(ids, bs, static_cast<float>(theta), axes, {});
}
}  // namespace Rope
#define gen_qwen_image_pe official_pe
#endif
#include "qwen_image.hpp"

struct Values {
  std::vector<int64_t> shape;
  std::vector<float> data;
};

static std::map<std::string, Values> read_values(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(std::string("cannot read ") + path);
  std::map<std::string, Values> all;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int rank = 0;
    words >> name >> rank;
    Values values;
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) {
      int64_t size = 0;
      words >> size;
      values.shape.push_back(size);
      count *= size;
    }
    values.data.resize(count);
    file.read(reinterpret_cast<char*>(values.data.data()), count * 4);
    all[name] = std::move(values);
  }
  return all;
}

// The runner of stable-diffusion.cpp with other sizes: its constructor has those of Qwen-Image.
struct SmallRunner : Qwen::QwenImageRunner {
  SmallRunner(ggml_backend_t backend, const Qwen::QwenImageParams& sizes) : QwenImageRunner(backend, false) {
    free_params_ctx();
    alloc_params_ctx();
    qwen_image_params = sizes;
    qwen_image = Qwen::QwenImageModel(sizes);
    qwen_image.init(params_ctx, {}, "");
  }
};

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto weights = read_values(argv[1]);
  const auto inputs = read_values(argv[2]);
  Qwen::QwenImageParams sizes;
  sizes.num_layers = 0;
  while (weights.count("transformer_blocks." + std::to_string(sizes.num_layers) + ".attn.to_q.weight"))
    ++sizes.num_layers;
  sizes.attention_head_dim = weights.at("transformer_blocks.0.attn.norm_q.weight").shape[0];
  sizes.num_attention_heads = weights.at("img_in.weight").shape[0] / sizes.attention_head_dim;
  sizes.joint_attention_dim = weights.at("txt_norm.weight").shape[0];
  sizes.axes_dim.clear();
  for (const float size : inputs.at("axes").data) sizes.axes_dim.push_back(static_cast<int>(size));
  sizes.axes_dim_sum = static_cast<int>(sizes.attention_head_dim);

  ggml_backend_t backend = ggml_backend_cpu_init();
  SmallRunner runner(backend, sizes);
  runner.alloc_params_buffer();
  std::map<std::string, ggml_tensor*> tensors;
  runner.get_param_tensors(tensors, "");
  for (auto& [name, tensor] : tensors) {
    const Values& values = weights.at(name);
    ggml_backend_tensor_set(tensor, values.data.data(), 0, ggml_nbytes(tensor));
    recorder.weight(name, tensor, "dit.");
  }
  for (int call = 0; call < std::atoi(argv[3]); ++call) {
    const auto given = [&](const char* name) {
      const Values& values = inputs.at(name + std::to_string(call));
      std::vector<int64_t> shape(values.shape.rbegin(), values.shape.rend());  // ggml's order
      return sd::Tensor<float>(shape, values.data);
    };
    const auto out = runner.compute(1, given("x"), given("t"), given("context"));
    std::cout << "call " << call << ": " << out.numel() << " values\n";
  }
  ggml_backend_free(backend);
}
