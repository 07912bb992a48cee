// Where CUDA is on this machine: the driver, the leaf library and NVIDIA's libraries, each opened at run time, and why
// it cannot be used when it cannot.
#pragma once
#include <string>
#include <vector>

#include "backend/cuda/leaf.h"

namespace lockstep::cuda {

struct Libraries {
  const Leaf* leaf = nullptr;  // null: `why` says what is missing
  std::string leaf_path, cublaslt_path, cudnn_path;
  int devices = 0, driver_version = 0;  // CUDA's: 13000
  std::string why;                      // "no driver: ...": empty when CUDA can be used
};

// Looked for once. LOCKSTEP_CUDA_LEAF names the leaf, LOCKSTEP_CUDA_LIBRARIES folders (colons between) that are
// searched first; then the system's places, an installed toolkit, and the packages nvidia-* beside the python3 on the
// PATH.
const Libraries& libraries();

}  // namespace lockstep::cuda
