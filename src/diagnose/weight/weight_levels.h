// A weight that takes few values once each group is brought to the same size: it was quantised, by whatever table.
#pragma once
#include <optional>
#include <string>

#include "measure/values.h"

namespace lockstep {

struct FewLevels {
  size_t levels = 0;
  std::string words;  // "16 values in groups of 64 counted through all rows"
};

// `noise`: by how much a value may be off, relative to the largest of its group.
std::optional<FewLevels> find_few_levels(const Values& weight, double noise);

}  // namespace lockstep
