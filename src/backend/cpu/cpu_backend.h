// The fast backend: oneDNN for dense products and convolutions, our own kernels for the rest.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace lockstep {

// threads 0: every core this process may use. More than those, or fewer than 0, is an error. Results are the same bits
// for the same machine, LOCKSTEP_CPU and thread count.
std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace lockstep
