// The rows of all calls of a linear layer in the candidate's run: what must be solved for needs more of them than one
// call may have. A row that comes again says nothing new (a time embedding is the same for every item and pass of a
// step), and a few rows are met by almost anything that is solved for: only different ones count.
#pragma once
#include <cstddef>
#include <set>
#include <span>
#include <vector>

#include "diagnose/case/family.h"

namespace lockstep {

class KnownRows {
 public:
  bool is_new(std::span<const float> row);

 private:
  std::set<size_t> known_;
};

struct CallRows {
  std::vector<std::span<const float>> x, y;  // [inputs], [outputs] each
};

// Different rows of the calls in order, until there are this many.
CallRows recorded_rows(Case& failing, int64_t inputs, int64_t outputs, int64_t enough);

}  // namespace lockstep
