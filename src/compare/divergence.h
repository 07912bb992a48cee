// Where two runs part: the first bad stage whose error goes on, whose code made it, and what is said beside it.
#pragma once
#include <functional>

#include "compare/comparison.h"
#include "diagnose/case/structure.h"

namespace lockstep {

inline constexpr const char* kRecordInputs =
    "record both runs with --inputs to tell a module's own error from the code that feeds it";

// A tensor a little beyond its limit whose consumers all agree is no divergence: it is good, and said to be so. What
// its stage itself makes is noise too, unless it is a mistake: one that a cause explains.
void forgive_the_harmless(const RunView& reference, const Structure& structure,
                          const std::function<size_t(size_t)>& result_of,
                          const std::function<bool(const PairResult&)>& is_a_mistake, Comparison& out);

// Sets first and every result's `isolated`. `result_of` gives the index of a reference record's result, or SIZE_MAX.
void locate_divergence(const RunView& reference, const Structure& structure,
                       const std::function<size_t(size_t)>& result_of, Comparison& out);
void fill_curve(const RunView& reference, Comparison& out);
// What the curve says must not contradict the verdict. After the first divergence was located.
void settle_growth(Comparison& out);
void fill_notes(const RunView& reference, const RunView& candidate, Comparison& out);

}  // namespace lockstep
