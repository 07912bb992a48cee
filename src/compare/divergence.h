// Where two runs part: the first bad stage whose error goes on, whose code made it, and what is said beside it.
#pragma once
#include <functional>

#include "compare/comparison.h"
#include "compare/structure.h"

namespace lockstep {

inline constexpr const char* kRecordInputs =
    "record both runs with --inputs to tell a module's own error from the code that feeds it";

// Sets first and every result's `isolated`. `result_of` gives the index of a reference record's result, or SIZE_MAX.
void locate_divergence(const RunView& reference, const Structure& structure,
                       const std::function<size_t(size_t)>& result_of, Comparison& out);
void fill_curve(const RunView& reference, Comparison& out);
void fill_notes(const RunView& reference, const RunView& candidate, Comparison& out);

}  // namespace lockstep
