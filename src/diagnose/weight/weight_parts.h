// A weight that was put together with others, or taken apart: q, k and v in one matrix here and in three there.
#pragma once
#include <string>
#include <vector>

#include "diagnose/case/weight_source.h"

namespace lockstep {

struct WeightPart {
  std::string small, large;
  int64_t begin = 0, end = 0;  // rows of `large` that are `small`
};

// Names of `smalls` whose values are rows of one of `larges`. Only within one block: both names count the same numbers.
std::vector<WeightPart> find_parts(const WeightSource& small_source, const std::vector<std::string>& smalls,
                                   const WeightSource& large_source, const std::vector<std::string>& larges);

}  // namespace lockstep
