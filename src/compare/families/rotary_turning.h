// The ways in which a rotation is done otherwise, with their names: for a tensor recorded after it was rotated, and for
// the rotations inside an attention.
#pragma once
#include <string>
#include <vector>

#include "compare/families/rotary_recorded.h"

namespace lockstep {

std::vector<Turning> changed_turnings(const Turning& reference);  // one change each, the likeliest first
const char* turning_cause(const Turning& reference, const Turning& candidate);
std::string turning_fix(const Turning& reference, const Turning& candidate);
std::string words_of(const Turning& turning);

}  // namespace lockstep
