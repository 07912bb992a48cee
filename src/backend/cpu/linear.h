// Linear layers: large dense weights go to oneDNN; small ones (whose products end before a primitive is found) and
// quantised ones to our own panels.
#pragma once
#include "backend/cpu/features.h"
#include "backend/cpu/onednn.h"
#include "backend/kernels.h"

namespace lockstep::cpu {

class Linear {
 public:
  Linear(OneDnn& onednn, int threads, Level level) : onednn_(onednn), threads_(threads), level_(level) {}

  bool prepare(LinearWeight& weight, DType activations);  // whether run() needs weight.weight no more
  void run(const LinearArgs& args);

 private:
  DType compute_dtype(DType activations) const;

  OneDnn& onednn_;
  int threads_;
  Level level_;
};

}  // namespace lockstep::cpu
