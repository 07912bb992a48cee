// Pairs whose values were not kept on both sides: what their statistics say, and what to record in full next time.
#pragma once
#include <string>
#include <vector>

#include "compare/comparison.h"

namespace lockstep {

// How far apart two tensors are by their statistics alone, in parts of the reference's rms: infinite where the counts
// of NaN or infinities differ. Rounding moves these numbers less than it moves elements.
double statistics_distance(const Statistics& candidate, const Statistics& reference);

std::string unread_note(const RunView& reference, const RunView& candidate, const std::vector<PairResult>& results);

}  // namespace lockstep
