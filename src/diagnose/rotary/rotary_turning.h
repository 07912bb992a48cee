// The ways in which a rotation is done otherwise, with their names: for a tensor recorded after it was rotated, and for
// the rotations inside an attention.
#pragma once
#include <string>
#include <vector>

#include "diagnose/rotary/rotary_recorded.h"
#include "diagnose/search/edits.h"

namespace lockstep {

struct ChangedTurning {
  EditName name;
  Turning how;
};
// One change each, the likeliest first. Axes: the parts of the head that turn by one axis of the positions each.
std::vector<ChangedTurning> changed_turnings(const Turning& reference, const std::vector<PairBlock>& axes = {});
// Halves of every axis's part turn together; as it is where there is one axis.
Turning with_halves_of_axes(Turning turning, const std::vector<PairBlock>& axes);
std::string words_of(const Turning& turning);

}  // namespace lockstep
