// What a forward pass carries: the backend, the dtype of activations, and the scope path under which its tensors are
// offered to a tap. A Ctx points at its parent, so a scope costs nothing until somebody listens; pass it down as an
// argument, never keep it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "tensor/input_tap.h"

namespace lockstep::nn {

struct Execution {
  Backend& backend;
  DType dtype = DType::kF32;
  Tap* tap = nullptr;
  int step = -1;               // denoising step
  std::string_view pass = {};  // "cond", "uncond"
  InputTap* inputs = nullptr;  // who wants to see what goes into modules, too
};

class Ctx {
 public:
  Ctx(const Execution& execution, std::string_view component) : execution_(&execution), name_(component) {}

  // Only on a named Ctx: a child of a temporary would point at a dead parent. Use dots for deeper names: ctx /
  // "net.0.proj".
  Ctx operator/(std::string_view name) const& { return Ctx(this, name, -1); }
  Ctx operator/(std::string_view name) const&& = delete;
  Ctx at(std::string_view list, int index) const& { return Ctx(this, list, index); }
  Ctx at(std::string_view list, int index) const&& = delete;

  Backend& backend() const { return execution_->backend; }
  DType dtype() const { return execution_->dtype; }
  std::string path() const;

  // Whether anyone wants this tensor: fused code asks before it skips one.
  bool listening() const { return execution_->tap && execution_->tap->wants(path()); }
  bool listening_to(std::string_view child) const { return execution_->tap && (*this / child).listening(); }

  Tensor tap(Tensor tensor) const { return execution_->tap ? offer(std::move(tensor)) : tensor; }
  Tensor tap_stage(Tensor tensor) const { return execution_->tap ? offer(std::move(tensor), true) : tensor; }
  // What goes into this module; `parameter` names it where several do.
  void tap_input(const Tensor& tensor, std::string_view parameter = {}) const {
    if (execution_->inputs) offer_input(tensor, parameter);
  }
  // An image held as [B, H, W, C] is offered in torch's order: [B, C, 1, H, W], or [B, C, H, W] without the frame axis.
  Tensor tap_image(Tensor nhwc, bool frame_axis = true) const;
  void tap_image_input(const Tensor& nhwc, bool frame_axis = true) const;

 private:
  Ctx(const Ctx* parent, std::string_view name, int index)
      : execution_(parent->execution_), parent_(parent), name_(name), index_(index) {}
  Tensor seen(const Tensor& tensor) const;
  Tensor offer(Tensor tensor, bool is_stage = false) const;
  void offer_input(const Tensor& tensor, std::string_view parameter) const;

  const Execution* execution_;
  const Ctx* parent_ = nullptr;
  std::string_view name_;
  int index_ = -1;
};

}  // namespace lockstep::nn
