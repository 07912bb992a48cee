// A table of angles column by column: each as a frequency times the positions of one of the reference's axes.
#pragma once
#include "diagnose/rotary/rotary_positions.h"

namespace lockstep {

// The candidate turns by other frequencies, or by another axis' positions, at the reference's own positions. An empty
// cause: some column is no such thing, or nothing differs but the positions.
PositionFinding compare_columns(const Angles& candidate, const Angles& reference, double limit);

}  // namespace lockstep
