// The candidate as the reference lays it out.
#pragma once
#include "compare/comparison.h"

namespace lockstep {

// Every paired tensor of the candidate moved by its rule of the map and put in the reference's order of axes, when it
// is loaded: whoever looks at both sides reads one layout, not two.
RunView in_layout_of(const RunView& reference, const RunView& candidate, const Comparison& comparison);

}  // namespace lockstep
