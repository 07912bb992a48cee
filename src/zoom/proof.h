// Whether what an answer names explains the whole difference: your values in the places of the reference's, and the
// reference's later operations replayed.
#pragma once
#include <utility>
#include <vector>

#include "zoom/region.h"

namespace lockstep::zoom {

enum class Proof {
  kOpen,     // could not be replayed: of a kind that is not computed here, or too much work
  kProven,   // gives your outputs
  kRefuted,  // gives others: there is more to it, or the lines are not the right ones
};

// `outputs`: pairs of yours and the reference's. `work`: multiplications that may be spent.
Proof prove(const std::vector<Region>& regions, const Side& reference, const Side& yours,
            const std::vector<std::pair<int, int>>& outputs, double tolerance, double work);

}  // namespace lockstep::zoom
