// Fused steps taken apart into the simple ones they stand for, so that a program that wrote them out can be compared.
#pragma once
#include "zoom/side.h"

namespace lockstep::zoom {

// Adds the values in between to the linear, norm, attention, SiLU or GELU that made `value`, and says whether there are
// any. What cannot be computed from the recorded operands to the recorded result, within `tolerance`, is left whole.
bool expand(Side& side, int value, double tolerance);

// The real and imaginary parts of every product of complex numbers, which a program with real numbers computes apart.
void expand_complex_products(Side& side);

}  // namespace lockstep::zoom
