// What goes into modules, for a listener that wants it besides what comes out (tap.h). Seen, never replaced.
#pragma once
#include "tensor/tap.h"

namespace lockstep {

class InputTap {
 public:
  virtual ~InputTap() = default;
  // `key` names the module, and the parameter behind it where several tensors go in.
  virtual void offer_input(const TensorKey& key, const Tensor& tensor) = 0;
};

}  // namespace lockstep
