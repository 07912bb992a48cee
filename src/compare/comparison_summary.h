// What docs/schemas/compare.json holds, without what there is one of for each tensor.
#pragma once
#include "compare/question.h"

namespace lockstep {

Json summary_json(const Comparison& comparison, const RunView& reference, const RunView& candidate);
Json summary_json(const CompareAnswer& answer);

}  // namespace lockstep
