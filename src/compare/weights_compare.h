// Two checkpoints compared by content, without running a model: missing, unused, renamed, duplicated, transposed, parts
// exchanged, another layer's, rounded or quantised.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "diagnose/case/weight_source.h"

namespace lockstep {

struct WeightFinding {
  std::string kind;   // "missing", "unused", "renamed", "part_of", "taken_apart", "duplicated", "other_layer", or a
                      // relation: "weights.transposed", ...
  std::string name;   // in A; in B for "unused" and "duplicated"
  std::string other;  // the tensor it turned out to be
  std::string words;
  double error = 0;     // relative, as it stands
  bool serious = true;  // false: rounding or quantisation
};

struct WeightsComparison {
  size_t compared = 0, identical = 0;
  std::vector<WeightFinding> findings;  // serious ones first, in the order of A's names
  bool match() const;                   // nothing serious
};

WeightsComparison compare_weights(const WeightSource& a, const WeightSource& b);
Json json_from(const WeightsComparison& comparison);
Text text_from(const WeightsComparison& comparison, size_t most_rows);

}  // namespace lockstep
