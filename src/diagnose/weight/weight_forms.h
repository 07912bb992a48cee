// A weight that a port holds in another form than the checkpoint: in few bits, or with its bits taken for others. Each
// form is a function of the weight's rows, so that only the rows that are looked at need to be made.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "measure/values.h"

namespace lockstep {

struct WeightForm {
  std::string words;  // "W cut to bfloat16"
  std::string fix;
  bool rounded = true;  // near the right weight; else its numbers mean something else
  std::function<Values(const Values& rows)> make;
};

// Changes of single numbers: cut off, read in another format, without a sign.
std::vector<WeightForm> element_forms();
// These, and the rows in few bits: in groups, a scale a row, one for all. `whole`: the weight as [out, the rest].
std::vector<WeightForm> row_forms(const Values& whole);

// As a checkpoint quantiser would leave it: groups along the last axis, `bits` wide, with a scale (and a bias when
// affine).
Values quantised(const Values& weight, int bits, int64_t group, bool affine);

}  // namespace lockstep
