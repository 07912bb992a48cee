// The backend of Apple's MLX: its own kernels in its own lazy graph, on Metal, or slowly on the CPU where the tests
// run. Nothing of MLX is linked: see library.h.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace lockstep {

std::unique_ptr<Backend> make_mlx_backend();  // Error{kDevice} with the reason where it cannot be used

}  // namespace lockstep
