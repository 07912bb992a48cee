// Are the calls counted alike? A warm-up or a call more on one side shifts every hit after it.
#pragma once
#include <optional>

#include "compare/pairing.h"
#include "diagnose/case/finding.h"

namespace lockstep {

// The reference's tensor of this pair is found in yours under the same name, at another call; only where one side made
// more calls than the other.
std::optional<Finding> find_other_call(const RunView& reference, const RunView& candidate, const Pair& pair,
                                       double tolerance);

}  // namespace lockstep
