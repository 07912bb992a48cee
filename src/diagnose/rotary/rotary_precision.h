// A table of angles computed in a poorer format than its cos and sin are kept in.
#pragma once
#include "diagnose/case/family.h"
#include "diagnose/rotary/rotary_positions.h"

namespace lockstep {

void search_coarse_angles(Case& failing, const Angles& candidate, const Angles& reference, Findings& out);
void search_coarse_table(Case& failing, Findings& out);  // cos or sin alone

}  // namespace lockstep
