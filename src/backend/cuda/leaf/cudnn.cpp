// Attention and convolutions by cuDNN through its frontend, opened at run time. A plan is built once for each shape.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "backend/cuda/leaf/context.h"
#include "backend/cuda/leaf/kernels.cuh"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace lockstep::cuda {
namespace {

namespace fe = cudnn_frontend;

struct Plan {
  std::shared_ptr<fe::graph::Graph> graph;  // null: the library has no plan for it
  std::shared_ptr<fe::graph::Tensor_attributes> q, k, v, out, mask;
  std::shared_ptr<fe::graph::Tensor_attributes> x, filter, bias, residual;
  int64_t workspace_bytes = 0;
};

fe::DataType_t type_of(int dtype) {
  return dtype == 1 ? fe::DataType_t::FLOAT : dtype == 2 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
}

}  // namespace

class Cudnn {
 public:
  cudnnHandle_t handles[kStreams] = {};
  void* workspaces[kStreams] = {};
  int64_t workspace_bytes[kStreams] = {};
  std::map<std::vector<int64_t>, Plan> plans;
  std::mutex mutex;

  int slot(const Device& device, Stream stream) const { return stream == device.streams[1] ? 1 : 0; }

  Outcome reserve(int slot, int64_t bytes) {
    if (bytes <= workspace_bytes[slot]) return Outcome::kDone;
    if (workspaces[slot]) cudaDeviceSynchronize();
    if (workspaces[slot]) cudaFree(workspaces[slot]);
    workspaces[slot] = nullptr;
    workspace_bytes[slot] = 0;
    const Outcome outcome = checked(cudaMalloc(&workspaces[slot], static_cast<size_t>(bytes)), "cuDNN's workspace");
    if (outcome == Outcome::kDone) workspace_bytes[slot] = bytes;
    return outcome;
  }
};

std::shared_ptr<Cudnn> open_cudnn(const char* path, std::string& why) {
  if (!path) {
    why = "no libcudnn.so.9 was found";
    return nullptr;
  }
  void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    why = dlerror();
    return nullptr;
  }
  fe::cudnn_dlhandle = library;
  auto dnn = std::make_shared<Cudnn>();
  try {
    for (int i = 0; i < 2; ++i)
      if (fe::detail::create_handle(&dnn->handles[i]) != CUDNN_STATUS_SUCCESS) {
        why = "cudnnCreate failed";
        return nullptr;
      }
  } catch (const std::exception& e) {
    why = e.what();
    return nullptr;
  }
  return dnn;
}

int version_of(const Cudnn&) {
  return static_cast<int>(fe::detail::get_backend_version());
}

namespace {

bool built(fe::graph::Graph& graph, cudnnHandle_t handle) {
  return graph.validate().is_good() && graph.build_operation_graph(handle).is_good() &&
         graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}).is_good() &&
         graph.check_support(handle).is_good() && graph.build_plans(handle).is_good();
}

std::shared_ptr<fe::graph::Tensor_attributes> heads(fe::graph::Graph& graph, const char* name, const View& view) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_name(name)
                          .set_dim({view.shape[0], view.shape[2], view.shape[1], view.shape[3]})
                          .set_stride({view.strides[0], view.strides[2], view.strides[1], view.strides[3]}));
}

Plan attention_plan(const AttentionTask& task, cudnnHandle_t handle) {
  Plan plan;
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_io_data_type(type_of(task.q.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  plan.q = heads(*graph, "q", task.q);
  plan.k = heads(*graph, "k", task.k);
  plan.v = heads(*graph, "v", task.v);
  auto options = fe::graph::SDPA_attributes().set_name("sdpa").set_generate_stats(false).set_attn_scale(task.scale);
  if (task.causal)
    options.set_causal_mask_bottom_right(task.q.shape[1] != task.k.shape[1])
        .set_causal_mask(task.q.shape[1] == task.k.shape[1]);
  auto [out, stats] = graph->sdpa(plan.q, plan.k, plan.v, options);
  out->set_output(true)
      .set_dim({task.out.shape[0], task.out.shape[2], task.out.shape[1], task.out.shape[3]})
      .set_stride({task.out.strides[0], task.out.strides[2], task.out.strides[1], task.out.strides[3]});
  plan.out = out;
  if (!built(*graph, handle)) return {};
  plan.workspace_bytes = graph->get_workspace_size();
  plan.graph = std::move(graph);
  return plan;
}

std::shared_ptr<fe::graph::Tensor_attributes> picture(fe::graph::Graph& graph, const char* name, const View& view) {
  const int64_t c = view.shape[3], w = view.shape[2], h = view.shape[1];
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_name(name)
                          .set_dim({view.shape[0], c, h, w})
                          .set_stride({h * w * c, 1, w * c, c}));
}

Plan convolution_plan(const ConvTask& task, cudnnHandle_t handle) {
  Plan plan;
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_io_data_type(type_of(task.x.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const int64_t c = task.x.shape[3], o = task.out.shape[3], kh = task.kernel_height, kw = task.kernel_width;
  plan.x = picture(*graph, "x", task.x);
  plan.filter = graph->tensor(fe::graph::Tensor_attributes()
                                  .set_name("filter")
                                  .set_dim({o, c, kh, kw})
                                  .set_stride({kh * kw * c, 1, kw * c, c}));
  auto y = graph->conv_fprop(plan.x, plan.filter,
                             fe::graph::Conv_fprop_attributes()
                                 .set_pre_padding({task.pad_top, task.pad_left})
                                 .set_post_padding({task.pad_bottom, task.pad_right})
                                 .set_stride({task.stride, task.stride})
                                 .set_dilation({1, 1}));
  const auto add = fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD);
  if (task.bias) {
    plan.bias =
        graph->tensor(fe::graph::Tensor_attributes().set_name("bias").set_dim({1, o, 1, 1}).set_stride({o, 1, o, o}));
    y = graph->pointwise(y, plan.bias, add);
  }
  if (task.residual.data) {
    plan.residual = picture(*graph, "residual", task.residual);
    y = graph->pointwise(y, plan.residual, add);
  }
  const int64_t h = task.out.shape[1], w = task.out.shape[2];
  y->set_output(true).set_dim({task.out.shape[0], o, h, w}).set_stride({h * w * o, 1, w * o, o});
  plan.out = y;
  if (!built(*graph, handle)) return {};
  plan.workspace_bytes = graph->get_workspace_size();
  plan.graph = std::move(graph);
  return plan;
}

using Pack = std::unordered_map<std::shared_ptr<fe::graph::Tensor_attributes>, void*>;

Outcome execute(Device& device, const Plan& plan, Pack& pack, Stream stream) {
  Cudnn& dnn = *device.dnn;
  const int slot = dnn.slot(device, stream);
  if (const Outcome outcome = dnn.reserve(slot, plan.workspace_bytes); outcome != Outcome::kDone) return outcome;
  fe::detail::set_stream(dnn.handles[slot], static_cast<cudaStream_t>(stream));
  auto status = plan.graph->execute(dnn.handles[slot], pack, dnn.workspaces[slot]);
  return status.is_good() ? Outcome::kDone : failed(status.get_message().c_str());
}

void append(std::vector<int64_t>& key, const View& view) {
  key.push_back(view.dtype);
  for (int i = 0; i < view.rank; ++i) {
    key.push_back(view.shape[i]);
    key.push_back(view.strides[i]);
  }
}

bool sixteen(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

bool suits_attention(const AttentionTask& task) {
  const int64_t width = task.q.shape[3];
  // A scale that is not positive: its running maximum does not expect one (NaN, cuDNN 9.19).
  if (!(task.scale > 0) || (task.q.dtype != 2 && task.q.dtype != 3) || task.key_mask || task.segments ||
      width % 8 != 0 || width > 256 || width < 16)
    return false;
  for (const View* view : {&task.q, &task.k, &task.v, &task.out}) {
    if (view->strides[3] != 1 || !sixteen(view->data)) return false;
    for (int axis = 0; axis < 3; ++axis)
      if (view->strides[axis] % 8 != 0) return false;
  }
  return true;
}

}  // namespace

Outcome attention_by_library(Context context, const AttentionTask* task, Stream stream) {
  Device& device = *static_cast<Device*>(context);
  if (!device.dnn || !suits_attention(*task)) return unsupported("attention of this kind by cuDNN");
  try {
    Cudnn& dnn = *device.dnn;
    const std::lock_guard lock(dnn.mutex);
    int64_t scale_bits = 0;
    std::memcpy(&scale_bits, &task->scale, sizeof(float));
    std::vector<int64_t> key{0, scale_bits, task->causal};
    for (const View* view : {&task->q, &task->k, &task->v, &task->out}) append(key, *view);
    auto [at, fresh] = dnn.plans.try_emplace(std::move(key));
    if (fresh) at->second = attention_plan(*task, dnn.handles[dnn.slot(device, stream)]);
    const Plan& plan = at->second;
    if (!plan.graph) return unsupported("cuDNN has no plan for this attention");
    Pack pack{{plan.q, task->q.data}, {plan.k, task->k.data}, {plan.v, task->v.data}, {plan.out, task->out.data}};
    return execute(device, plan, pack, stream);
  } catch (const std::exception& e) {
    return failed(e.what());
  }
}

Outcome convolve_by_library(Context context, const ConvTask* task, Stream stream) {
  Device& device = *static_cast<Device*>(context);
  const bool suits = device.dnn && (task->x.dtype == 2 || task->x.dtype == 3) && task->x.shape[3] % 8 == 0 &&
                     task->out.shape[3] % 8 == 0 && sixteen(task->x.data) && sixteen(task->out.data);
  if (!suits) return unsupported("a convolution of this kind by cuDNN");
  try {
    Cudnn& dnn = *device.dnn;
    const std::lock_guard lock(dnn.mutex);
    std::vector<int64_t> key{1,
                             task->kernel_height,
                             task->kernel_width,
                             task->stride,
                             task->pad_top,
                             task->pad_left,
                             task->pad_bottom,
                             task->pad_right,
                             task->bias != nullptr,
                             task->residual.data != nullptr};
    append(key, task->x);
    append(key, task->out);
    auto [at, fresh] = dnn.plans.try_emplace(std::move(key));
    if (fresh) at->second = convolution_plan(*task, dnn.handles[dnn.slot(device, stream)]);
    const Plan& plan = at->second;
    if (!plan.graph) return unsupported("cuDNN has no plan for this convolution");
    Pack pack{{plan.x, task->x.data}, {plan.filter, const_cast<void*>(task->filter)}, {plan.out, task->out.data}};
    if (plan.bias) pack[plan.bias] = const_cast<void*>(task->bias);
    if (plan.residual) pack[plan.residual] = task->residual.data;
    return execute(device, plan, pack, stream);
  } catch (const std::exception& e) {
    return failed(e.what());
  }
}

}  // namespace lockstep::cuda
