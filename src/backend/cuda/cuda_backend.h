// The backend of NVIDIA's devices: cuBLASLt and cuDNN for products, attention and convolutions, our own kernels for the
// rest. Nothing of CUDA is linked: see library.h.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace lockstep {

std::unique_ptr<Backend> make_cuda_backend(int device);  // Error{kDevice} with the reason where it cannot be used

}  // namespace lockstep
