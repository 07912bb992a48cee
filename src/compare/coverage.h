// How much of the reference was compared, and whether the candidate's program came to its end: a match of a few tensors
// is no match of the program.
#pragma once
#include <string>

#include "compare/comparison.h"

namespace lockstep {

Coverage coverage_of(const RunView& reference, const RunView& candidate, const Comparison& comparison);

}  // namespace lockstep
