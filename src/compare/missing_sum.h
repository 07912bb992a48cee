// Ranks that go on with their own term of a sum: an all_reduce that was left out.
#pragma once
#include <optional>

#include "compare/comparison.h"

namespace lockstep {

// Both of the first bad pair.
std::optional<Finding> find_missing_sum(const RunView& reference, const RunView& candidate,
                                        const Comparison& comparison, double tolerance);

// Ranks that should hold the same tensor, of which some agree with the reference and others do not.
std::optional<Finding> find_odd_rank(const RunView& reference, const RunView& candidate, const Comparison& comparison,
                                     double tolerance);

// The run ends with terms of a sum: whether the program adds them up, nobody has recorded. Empty: it does not.
std::string unproven_sum(const RunView& candidate, const Comparison& comparison);

}  // namespace lockstep
