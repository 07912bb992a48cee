#include "nn/ctx.h"

#include "base/error.h"
#include "ops/elementwise.h"

namespace lockstep::nn {

std::string Ctx::path() const {
  std::string text = parent_ ? parent_->path() : std::string();
  if (!text.empty() && !name_.empty()) text += '.';
  text += name_;
  if (index_ >= 0) text += "." + std::to_string(index_);
  return text;
}

Tensor Ctx::offer(Tensor tensor, bool is_stage) const {
  TensorKey key{.name = path(), .step = execution_->step, .hit = 0, .tags = {}};
  if (!execution_->tap->wants(key.name)) return tensor;
  if (!execution_->pass.empty()) key.tags.emplace_back("pass", execution_->pass);
  std::optional<Tensor> replacement = is_stage && execution_->inputs
                                          ? execution_->inputs->offer_stage(key, tensor.host())
                                          : execution_->tap->offer(key, tensor.host());
  if (!replacement) return tensor;
  if (replacement->shape() != tensor.shape())
    fail(Code::kBadInput, "substitute", key.name + " has another shape in the reference",
         {.expected = to_string(tensor.shape()), .got = to_string(replacement->shape())});
  return backend().upload(replacement->to(tensor.dtype()).contiguous());
}

void Ctx::offer_input(const Tensor& tensor, std::string_view parameter) const {
  TensorKey key{.name = path(), .step = execution_->step, .hit = 0, .tags = {}};
  if (!parameter.empty()) key.name.append(".").append(parameter);
  if (!execution_->tap->wants(key.name)) return;
  if (!execution_->pass.empty()) key.tags.emplace_back("pass", execution_->pass);
  execution_->inputs->offer_input(key, tensor.host());
}

void Ctx::tap_image_input(const Tensor& nhwc, bool frame_axis) const {
  if (!execution_->inputs || !listening()) return;
  const Tensor nchw = nhwc.permute({0, 3, 1, 2});  // [B, C, H, W]
  offer_input(frame_axis ? nchw.unsqueeze(2) : nchw, {});
}

Tensor Ctx::tap_image(Tensor nhwc, bool frame_axis) const {
  if (!listening()) return nhwc;
  const Tensor nchw = nhwc.permute({0, 3, 1, 2});  // [B, C, H, W]
  Tensor seen = offer(frame_axis ? nchw.unsqueeze(2) : nchw);
  if (frame_axis) seen = seen.squeeze(2);
  return ops::contiguous(backend(), seen.permute({0, 2, 3, 1}));
}

}  // namespace lockstep::nn
