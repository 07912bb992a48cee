// Lines that only pass a value on under another name. They have no operation, and yet they may be what is left of one.
#pragma once
#include "zoom/region.h"

namespace lockstep::zoom {

// `b = a` between the line that makes a region's value and the line that takes it belongs to the region.
void add_passing_lines(std::vector<Region>& regions, const Side& yours);

}  // namespace lockstep::zoom
