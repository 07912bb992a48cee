// How the shards of each name belong together: the way in which both sides have the same values, else the same shape.
#pragma once
#include "compare/ranked_side.h"

namespace lockstep {

void choose_ways(RankedSide& reference, RankedSide& candidate);  // fills `chosen` of both

}  // namespace lockstep
