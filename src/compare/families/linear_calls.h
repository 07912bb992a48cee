// All calls of a linear layer in the candidate's run: what must be solved for needs more rows than one call may have.
#pragma once
#include <vector>

#include "compare/families/family.h"

namespace lockstep {

struct LinearCall {
  const Values *x, *y;  // [.., inputs], [.., outputs]
};

// Calls in order, until they have this many rows.
std::vector<LinearCall> recorded_calls(Case& failing, int64_t inputs, int64_t outputs, int64_t enough_rows);

}  // namespace lockstep
