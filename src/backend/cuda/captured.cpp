#include "backend/cuda/captured.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/rehearsal.h"

namespace lockstep::cuda {
namespace {

bool alike(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(
      a, b, [](const Tensor& x, const Tensor& y) { return x.shape() == y.shape() && x.dtype() == y.dtype(); });
}

class Captured final : public Repeated {
 public:
  Captured(std::shared_ptr<Device> device, Backend::Body body) : device_(std::move(device)), body_(std::move(body)) {}
  ~Captured() override { forget(); }

  Tensor run(const std::vector<Tensor>& inputs) override {
    if (rehearsing()) return body_(inputs);
    const bool same = alike(inputs, last_);
    last_ = inputs;
    if (!same) {
      forget();
      return body_(inputs);
    }
    if (!graph_ && !refused_) capture(inputs);
    if (!graph_) return body_(inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const View from = device_->view(inputs[i], "graph");
      View to = device_->view(inputs_[i], "graph");
      device_->issue("graph", {&inputs[i]}, {&inputs_[i]}, 1,
                     [&](Stream stream) { return device_->leaf().copy_view(&from, &to, stream); });
    }
    device_->launch(graph_);
    return output_;
  }

 private:
  void capture(const std::vector<Tensor>& inputs) {
    pool_ = std::make_shared<BlockPool>(*device_);
    inputs_.clear();
    for (const Tensor& input : inputs) inputs_.push_back(device_->allocate(input.dtype(), input.shape()));
    device_->begin_capture(pool_);
    try {
      output_ = body_(inputs_);
    } catch (...) {
      if (Graph graph = device_->end_capture()) device_->leaf().destroy_graph(device_->context(), graph);
      forget();
      throw;
    }
    graph_ = device_->end_capture();
    refused_ = graph_ == nullptr;  // then every run is done kernel by kernel
    if (refused_) output_ = {};
  }

  void forget() {
    if (graph_) {
      device_->synchronize();
      device_->leaf().destroy_graph(device_->context(), graph_);
    }
    graph_ = nullptr;
    output_ = {};
    inputs_.clear();
    pool_.reset();
  }

  std::shared_ptr<Device> device_;
  Backend::Body body_;
  std::vector<Tensor> last_, inputs_;
  Tensor output_;
  std::shared_ptr<BlockPool> pool_;
  Graph graph_ = nullptr;
  bool refused_ = false;
};

}  // namespace

std::unique_ptr<Repeated> captured(std::shared_ptr<Device> device, Backend::Body body) {
  return std::make_unique<Captured>(std::move(device), std::move(body));
}

}  // namespace lockstep::cuda
