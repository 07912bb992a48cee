#include "backend/backend.h"

#include <limits>

#include "base/error.h"

namespace lockstep {
namespace {

class RunEachTime final : public Repeated {
 public:
  explicit RunEachTime(Backend::Body body) : body_(std::move(body)) {}
  Tensor run(const std::vector<Tensor>& inputs) override { return body_(inputs); }

 private:
  Backend::Body body_;
};

}  // namespace

Tensor Backend::allocate(DType dtype, const Shape& shape) {
  return Tensor::empty(dtype, shape);
}
Tensor Backend::upload(const Tensor& tensor) {
  return tensor.host();
}
MemoryUse Backend::memory() const {
  return memory_use();
}
uint64_t Backend::available_bytes() const {
  return std::numeric_limits<uint64_t>::max();
}
void Backend::reset_peak() {
  reset_peak_memory();
}
std::unique_ptr<Repeated> Backend::repeated(Body body) {
  return std::make_unique<RunEachTime>(std::move(body));
}
void Backend::torch_cuda_normals(uint64_t, Tensor&) {
  fail(Code::kUnsupported, "noise", "torch's CUDA numbers are drawn on such a device",
       {.got = description(), .hint = "--device cuda, or --noise torch"});
}

}  // namespace lockstep
