// What every backend asks of the tensors it is given, before it looks at a single element.
#pragma once
#include <initializer_list>

#include "tensor/tensor.h"

namespace lockstep {

// Storage must exist and start at a multiple of its element size; null pointers stand for operands that were left out.
// Everything about shapes is the ops' to check.
void check_storage(const char* operation, std::initializer_list<const Tensor*> tensors);

}  // namespace lockstep
