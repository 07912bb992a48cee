// The cause of the first divergence: looked for at the bad tensor, and behind it where the candidate recorded less.
#pragma once
#include <functional>

#include "compare/comparison.h"
#include "diagnose/case/structure.h"

namespace lockstep {

inline constexpr size_t kMostCauses = 3;  // that an answer names

// Fills in the region, the causes and, where they say more, the kind. `unit` is the unit roundoff of the pair.
void explain_first(const RunView& reference, const RunView& candidate, const Structure& structure,
                   const CompareOptions& options, const std::function<bool(size_t)>& is_good, double unit,
                   Comparison& out);

// What such a program should name to see more: the reference's tensors between the last good one and the bad one.
std::string name_in_between(const RunView& reference, const std::function<size_t(size_t)>& partner, size_t record);

}  // namespace lockstep
