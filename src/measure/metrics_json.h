// Statistics and comparisons as JSON: the one form in which records, --json, REST and MCP show them.
#pragma once
#include "base/json.h"
#include "measure/metrics.h"

namespace lockstep {

Json json_from(const Statistics& statistics);  // min max mean std rms absmax nan inf zero denormal, as in records
Json json_from(const TensorComparison& comparison);

}  // namespace lockstep
