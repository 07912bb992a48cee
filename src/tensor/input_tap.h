// For a listener that wants more than what comes out of modules (tap.h): what goes into them, which is seen and never
// replaced, and what passes between models, told from what modules give.
#pragma once
#include "tensor/tap.h"

namespace lockstep {

class InputTap {
 public:
  virtual ~InputTap() = default;
  // `key` names the module, and the parameter behind it where several tensors go in.
  virtual void offer_input(const TensorKey& key, const Tensor& tensor) = 0;
  virtual std::optional<Tensor> offer_stage(const TensorKey& key, const Tensor& tensor) = 0;
};

}  // namespace lockstep
