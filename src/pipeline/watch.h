// Who follows the pictures of a run one by one: drops some at any layer, and looks at what a step predicts. A listener
// of tensors (Tap) changes how a run is computed; a watch never does, so that a picture has the same bits with it.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "models/qwen_image/rope.h"

namespace lockstep {

struct WatchedStep {
  size_t request = 0;
  int step = 0, steps = 0;  // done, of those that are taken
  const Tensor& latents;    // packed [1, N, C], before the step
  const Tensor& velocity;   // packed [1, N, C]
  float sigma = 0;          // that the step started from: latents - sigma * velocity is the clean picture predicted
  models::Grid grid;        // of one frame of the picture, in tokens
};

class RunWatch {
 public:
  virtual ~RunWatch() = default;
  virtual bool dropped(size_t request) const = 0;  // asked at each layer: nobody wants this picture any more
  virtual void layer_begins() {}                   // told at each layer that is computed
  virtual void stepped(const WatchedStep& step) = 0;
};

// Where the parts of models stay loaded between runs.
class PartShelf {
 public:
  using Part = std::shared_ptr<const void>;
  virtual ~PartShelf() = default;
  // The part that is kept under this name, or what `load` makes, which may be kept.
  virtual Part part(const std::string& name, const std::function<Part()>& load) = 0;
};

// Where what the text encoder made of prompts stays between runs.
class PromptShelf {
 public:
  virtual ~PromptShelf() = default;
  virtual Tensor find(size_t request, const std::string& prompt) = 0;  // undefined: not kept
  virtual void keep(size_t request, const std::string& prompt, const Tensor& rows) = 0;
};

}  // namespace lockstep
