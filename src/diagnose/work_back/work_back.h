// A port written by hand records what its layers give, seldom what they are given. A linear layer whose weight is known
// answers backwards: its input is worked back from its output, and then it can be seen whether the layer is wrong or
// the code that feeds it.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/case/family.h"

namespace lockstep {

struct WorkedBack {
  size_t record = 0;  // the reference's record of the input
  Values reference, candidate;
  double tolerance = 0;           // what the way back makes of rounding, measured on the reference's own output
  std::vector<std::string> from;  // the layers it was worked back from; several agree on one input
  // By the reference's record: what yours was given there at other steps and in other passes.
  std::map<size_t, Values> elsewhere;
};

// Nothing when the bad tensor is no output of such a layer, when the candidate's input was recorded, when the way back
// is too steep, or when layers that share the input do not agree on it: then the layer itself is wrong.
std::optional<WorkedBack> work_back(Case& failing);

}  // namespace lockstep
