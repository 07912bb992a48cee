// Guidance needs two passes of the model: one after the other, or both in one batch. Where one side has the one and the
// other side the other, the batch is taken apart, so that pass is compared with pass.
#pragma once
#include <string>
#include <vector>

#include "compare/pairing.h"

namespace lockstep {

// Changes the side whose records hold both passes. Returns what was done in words; empty: nothing.
std::string take_passes_apart(RunView& reference, RunView& candidate, const std::vector<MapRule>& map);

}  // namespace lockstep
