// A known cause for a region: the search of causes, given the region's own operands and results, which lie far closer
// to the mistake than the module's do.
#pragma once
#include "zoom/region.h"

namespace lockstep::zoom {

// The cause that explains how your value came about where the reference has another; nothing where no family does, or
// the values are too large or were not kept. `tolerance`: the one that the two sides were matched with.
std::optional<RegionCause> cause_of(const Region& region, const Side& reference, const Side& yours, double tolerance);

}  // namespace lockstep::zoom
