// What one weight is to another of the same name: the same, transposed, rearranged, rounded, somebody else's, or made
// up.
#pragma once
#include <string>

#include "diagnose/case/causes.h"
#include "measure/values.h"

namespace lockstep {

struct WeightRelation {
  Cause id;  // none: they are identical
  std::string words;
  double error = 0;  // relative, as they stand
};

WeightRelation relate_weights(const std::string& name, const Values& candidate, const Values& reference);

}  // namespace lockstep
