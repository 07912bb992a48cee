// Taps: where an engine offers a tensor by name to whoever listens. The listener may hand back a replacement.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

using Tags = std::vector<std::pair<std::string, std::string>>;  // such as {"pass", "cond"}, sorted by key

// One name per tensor, everywhere: component, then checkpoint prefix. `hit` counts repeats of the rest, from 0, in one
// place: whoever records. step is -1 outside the denoising loop.
struct TensorKey {
  std::string name;
  int step = -1;
  int hit = 0;
  Tags tags;

  friend bool operator==(const TensorKey&, const TensorKey&) = default;
  friend auto operator<=>(const TensorKey&, const TensorKey&) = default;
};

std::string to_string(const TensorKey& key);  // "transformer.img_in @step 3 #0 pass=cond"

class Tap {
 public:
  virtual ~Tap() = default;
  virtual bool wants(std::string_view name) const = 0;
  // `key.hit` is filled in by the listener. A returned tensor (same shape) is used in place of the offered one.
  virtual std::optional<Tensor> offer(const TensorKey& key, const Tensor& tensor) = 0;
  // Whether offered tensors may lie on a device, contiguous: the listener reads them through host(), if at all.
  virtual bool takes_device_tensors() const { return false; }
};

}  // namespace lockstep
