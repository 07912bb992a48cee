// The judge of every other backend: naive loops, f64 arithmetic, any dtype. Slow on purpose, and obviously right.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace lockstep {

std::unique_ptr<Backend> make_reference_backend();

}  // namespace lockstep
