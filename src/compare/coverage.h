// How much of the reference was compared, and whether the candidate's program came to its end: a match of a few tensors
// is no match of the program.
#pragma once
#include <string>

#include "compare/comparison.h"

namespace lockstep {

Coverage coverage_of(const RunView& reference, const RunView& candidate, const Comparison& comparison);

// What the reference ends in, where nothing of the candidate's answers it; empty: it was compared.
std::string end_not_compared(const RunView& reference, const Comparison& comparison);

}  // namespace lockstep
