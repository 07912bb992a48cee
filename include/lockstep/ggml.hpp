// Records what a ggml graph computes, module by module, although ggml has no modules: a product with the weight
// `blocks.0.attn.to_q.weight`, and what follows with that prefix (its bias), is the output of `blocks.0.attn.to_q`, and
// what the product is given is its input. Header only; include after ggml.h and ggml-backend.h, link with
// -llockstep_capture.
//
//   #include <lockstep/ggml.hpp>
//   lockstep::GgmlRecorder recorder("stable-diffusion.cpp");  // does nothing unless LOCKSTEP_RECORD asks
//   for (auto& [name, tensor] : tensors) recorder.weight(name, tensor);  // where the program does not name its weights
//   recorder.compute(backend, graph);                                    // in place of ggml_backend_graph_compute
//
// Programs with a scheduler (llama.cpp, whisper.cpp) set their evaluation callback instead:
//   ggml_backend_sched_set_eval_callback(sched, lockstep::GgmlRecorder::evaluate, &recorder);
// Nodes that the program has named itself (ggml_set_name) are recorded under that name as well.
#pragma once
#include <lockstep/lockstep.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep {

class GgmlRecorder {
 public:
  explicit GgmlRecorder(const char* program) {
    lockstep_open_from_environment(program, &run_);
    const char* inputs = std::getenv("LOCKSTEP_INPUTS");
    inputs_ = !inputs || std::strcmp(inputs, "0") != 0;
  }
  ~GgmlRecorder() { lockstep_close(run_, "finished"); }
  GgmlRecorder(const GgmlRecorder&) = delete;
  GgmlRecorder& operator=(const GgmlRecorder&) = delete;

  bool active() const { return run_ != nullptr; }
  lockstep_run* run() const { return run_; }
  void describe(const char* details_json) { lockstep_describe(run_, details_json); }
  // Name and circumstances of what is recorded next: the denoising step, and the pass (may be "").
  void at(int step, const std::string& pass) { step_ = step, pass_ = pass; }

  // Gives a weight the name of its checkpoint. `prefix` goes before the names of modules, such as "transformer.".
  void weight(const std::string& name, ggml_tensor* tensor, const std::string& prefix = "") {
    if (!run_ || !tensor) return;
    weights_[tensor] = prefix + name;
    const size_t dot = name.rfind('.');
    if (dot != std::string::npos) note(prefix + name.substr(0, dot), name.substr(dot + 1), tensor);
  }

  // A tensor by hand: an input of the graph, a result.
  void checkpoint(const std::string& name, const ggml_tensor* tensor) { offer(name, tensor, LOCKSTEP_CHECKPOINT); }

  // As ggml_backend_graph_compute: nodes between two that are recorded are computed together, because the memory of a
  // node may be used again as soon as nothing later reads it.
  ggml_status compute(ggml_backend_t backend, ggml_cgraph* graph) {
    if (!run_) return ggml_backend_graph_compute(backend, graph);
    plan(graph);
    const int count = ggml_graph_n_nodes(graph);
    ggml_init_params params = {ggml_graph_overhead_custom(static_cast<size_t>(count) + 1, false) + 4096, nullptr, true};
    ggml_context* context = ggml_init(params);
    ggml_cgraph* part = ggml_new_graph_custom(context, static_cast<size_t>(count) + 1, false);
    ggml_status status = GGML_STATUS_SUCCESS;
    const auto run_part = [&] {
      if (ggml_graph_n_nodes(part) > 0) status = ggml_backend_graph_compute(backend, part);
      ggml_graph_clear(part);
    };
    for (int i = 0; i < count && status == GGML_STATUS_SUCCESS; ++i) {
      ggml_tensor* node = ggml_graph_node(graph, i);
      if (const auto found = before_.find(node); found != before_.end()) {
        run_part();
        for (const Seen& seen : found->second) offer(seen.name, seen.tensor, LOCKSTEP_INPUT);
      }
      ggml_graph_add_node(part, node);
      if (const auto found = after_.find(node); found != after_.end()) {
        run_part();
        for (const std::string& name : found->second) offer(name, node, LOCKSTEP_OUTPUT);
      }
    }
    if (status == GGML_STATUS_SUCCESS) run_part();
    ggml_free(context);
    return status;
  }

  // For ggml_backend_sched_set_eval_callback: asked first whether a node is wanted, then told that it is there.
  static bool evaluate(ggml_tensor* node, bool ask, void* recorder) {
    GgmlRecorder& self = *static_cast<GgmlRecorder*>(recorder);
    if (!self.run_) return !ask;
    const std::string prefix = self.prefix_of(node);
    const bool named = prefix.empty() && is_named(node);
    if (ask) return !prefix.empty() || named;
    if (!prefix.empty() && self.inputs_ && node->op == GGML_OP_MUL_MAT)
      self.offer(prefix, before_scaling(node->src[1]), LOCKSTEP_INPUT);
    // The product without its bias, and then with it, are hits of one name: the last is the module's result.
    self.offer(prefix.empty() ? std::string(node->name) : prefix, node, LOCKSTEP_OUTPUT);
    return true;
  }

 private:
  struct Seen {
    std::string name;
    const ggml_tensor* tensor;
  };

  static bool moves_only(const ggml_tensor* node) {
    switch (node->op) {
      case GGML_OP_RESHAPE:
      case GGML_OP_VIEW:
      case GGML_OP_PERMUTE:
      case GGML_OP_TRANSPOSE:
      case GGML_OP_CONT:
      case GGML_OP_CPY:
      case GGML_OP_SCALE:
        return true;
      default:
        return false;
    }
  }

  // By the program: ggml numbers all others, and calls a view of one without a name " (view)".
  static bool is_named(const ggml_tensor* node) {
    return node->name[0] != '\0' && node->name[0] != ' ' && std::strncmp(node->name, "node_", 5) != 0;
  }

  // Some programs scale down what goes into a product and up what comes out, against overflow.
  static const ggml_tensor* before_scaling(const ggml_tensor* tensor) {
    while (tensor && tensor->op == GGML_OP_SCALE) tensor = tensor->src[0];
    return tensor;
  }
  static const ggml_tensor* first_scaling(const ggml_tensor* tensor) {
    while (tensor->src[0]->op == GGML_OP_SCALE) tensor = tensor->src[0];
    return tensor;
  }

  // ggml's programs are C++17.
  static bool ends_with(const std::string& text, const std::string& end) {
    return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
  }

  std::string weight_name(const ggml_tensor* tensor) const {
    for (int depth = 0; tensor && depth < 4; ++depth) {
      if (const auto found = weights_.find(tensor); found != weights_.end()) return found->second;
      if (tensor->op == GGML_OP_NONE && (ends_with(tensor->name, ".weight") || ends_with(tensor->name, ".bias")))
        return tensor->name;
      tensor = tensor->view_src ? tensor->view_src : moves_only(tensor) ? tensor->src[0] : nullptr;
    }
    return "";
  }

  // The module whose weight a node uses.
  std::string prefix_of(const ggml_tensor* node) const {
    switch (node->op) {
      case GGML_OP_MUL_MAT:
      case GGML_OP_MUL:
      case GGML_OP_ADD:
      case GGML_OP_GET_ROWS:
      case GGML_OP_CONV_2D:
      case GGML_OP_IM2COL:
        break;
      default:
        return "";
    }
    for (int i = 0; i < 2; ++i)
      if (node->src[i])
        if (const std::string name = weight_name(node->src[i]); !name.empty()) return name.substr(0, name.rfind('.'));
    return "";
  }

  const ggml_tensor* other_operand(const ggml_tensor* node) const {
    return weight_name(node->src[0]).empty() ? node->src[0] : node->src[1];
  }

  // Which nodes are results of modules: the last of those that use one module's weights in a row.
  void plan(ggml_cgraph* graph) {
    before_.clear();
    after_.clear();
    std::unordered_map<const ggml_tensor*, std::string> carries;      // node → module whose result it may become
    std::unordered_map<const ggml_tensor*, const ggml_tensor*> ends;  // node → the node of that module before it
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
      ggml_tensor* node = ggml_graph_node(graph, i);
      const std::string prefix = prefix_of(node);
      if (prefix.empty()) {
        if (moves_only(node) && node->src[0])
          if (const auto found = carries.find(node->src[0]); found != carries.end()) {
            carries[node] = found->second;
            ends[node] = ends.count(node->src[0]) ? ends[node->src[0]] : node->src[0];
          }
        continue;
      }
      const ggml_tensor* given = other_operand(node);
      const auto before = given ? carries.find(given) : carries.end();
      if (before != carries.end() && before->second == prefix) {
        after_.erase(ends.count(given) ? ends[given] : given);  // its bias comes now
      } else if (inputs_ && given) {
        const bool norm = node->op == GGML_OP_MUL && (given->op == GGML_OP_RMS_NORM || given->op == GGML_OP_NORM);
        const ggml_tensor* input = before_scaling(norm ? given->src[0] : given);
        // Read before this is computed: what is scaled is often scaled in place.
        const ggml_tensor* first = norm ? given : input != given ? first_scaling(given) : node;
        if (input) before_[first].push_back({prefix, input});
      }
      carries[node] = prefix;
      after_[node].push_back(prefix);
    }
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
      const ggml_tensor* node = ggml_graph_node(graph, i);
      if (is_named(node) && !moves_only(node) && !after_.count(node)) after_[node].push_back(node->name);
    }
  }

  static int dtype_of(ggml_type type) {
    switch (type) {
      case GGML_TYPE_F32:
        return LOCKSTEP_F32;
      case GGML_TYPE_F16:
        return LOCKSTEP_F16;
      case GGML_TYPE_BF16:
        return LOCKSTEP_BF16;
      case GGML_TYPE_F64:
        return LOCKSTEP_F64;
      case GGML_TYPE_I8:
        return LOCKSTEP_I8;
      case GGML_TYPE_I16:
        return LOCKSTEP_I16;
      case GGML_TYPE_I32:
        return LOCKSTEP_I32;
      case GGML_TYPE_I64:
        return LOCKSTEP_I64;
      default:
        return -1;
    }
  }

  // ggml counts axes from the fastest; the other way round here, as everywhere else. Axes of 1 in front are left out.
  template <typename Use>
  void with_view(const ggml_tensor* tensor, Use use) {
    const int dtype = dtype_of(tensor->type);
    if (dtype < 0 || ggml_nelements(tensor) == 0) return;
    const ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    const void* data = tensor->data;
    std::vector<char> copy;
    if (buffer && !ggml_backend_buffer_is_host(buffer)) {  // only what lies in one piece can be fetched
      if (!ggml_is_contiguous(tensor)) return;
      copy.resize(ggml_nbytes(tensor));
      ggml_backend_tensor_get(tensor, copy.data(), 0, copy.size());
      data = copy.data();
    }
    if (!data) return;
    const int rank = ggml_n_dims(tensor);
    int64_t shape[GGML_MAX_DIMS], strides[GGML_MAX_DIMS];
    for (int i = 0; i < rank; ++i) {
      shape[i] = tensor->ne[rank - 1 - i];
      strides[i] = static_cast<int64_t>(tensor->nb[rank - 1 - i] / ggml_type_size(tensor->type));
    }
    const lockstep_view view = {data, dtype, rank, shape, strides};
    use(view);
  }

  void offer(const std::string& name, const ggml_tensor* tensor, lockstep_role role) {
    if (!tensor || !lockstep_wants(run_, name.c_str())) return;
    with_view(tensor, [&](const lockstep_view& view) {
      const lockstep_tag pass = {"pass", pass_.c_str()};
      const lockstep_place place = {
          name.c_str(), step_, role, pass_.empty() ? nullptr : &pass, pass_.empty() ? 0u : 1u, nullptr, 0, nullptr};
      lockstep_checkpoint(run_, &place, &view, nullptr);
    });
  }

  void note(const std::string& module, const std::string& name, const ggml_tensor* tensor) {
    with_view(tensor, [&](const lockstep_view& view) { lockstep_weight(run_, module.c_str(), name.c_str(), &view); });
  }

  lockstep_run* run_ = nullptr;
  bool inputs_ = true;
  int step_ = -1;
  std::string pass_;
  std::unordered_map<const ggml_tensor*, std::string> weights_;
  std::unordered_map<const ggml_tensor*, std::vector<Seen>> before_;
  std::unordered_map<const ggml_tensor*, std::vector<std::string>> after_;
};

}  // namespace lockstep
