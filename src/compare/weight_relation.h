// What one weight is to another of the same name: the same, transposed, rearranged, rounded, somebody else's, or made
// up.
#pragma once
#include <string>

#include "compare/finding.h"
#include "compare/values.h"

namespace lockstep {

struct WeightRelation {
  std::string id;  // "identical", "weights.transposed", "weights.parts_exchanged", "weights.rounded_bf16",
                   // "weights.random", ...
  std::string words;
  double error = 0;  // relative, as they stand
};

WeightRelation relate_weights(const std::string& name, const Values& candidate, const Values& reference);

// As a checkpoint quantiser would leave it: groups along the last axis, `bits` wide, with a scale (and a bias when
// affine).
Values quantised(const Values& weight, int bits, int64_t group, bool affine);

}  // namespace lockstep
