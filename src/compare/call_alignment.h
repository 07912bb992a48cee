// Which call of a tensor's name is which, where two programs count steps, hits or passes otherwise: by content, by what
// the other names show, and by order where both have equally many.
#pragma once
#include <utility>
#include <vector>

#include "diagnose/case/run_view.h"

namespace lockstep {

struct NamedCalls {
  std::vector<size_t> reference, candidate;  // records of one name, in order
};

// For each name the pairs of records; those that nothing decides are left out.
std::vector<std::vector<std::pair<size_t, size_t>>> align_calls(const RunView& reference, const RunView& candidate,
                                                                const std::vector<NamedCalls>& names);

}  // namespace lockstep
