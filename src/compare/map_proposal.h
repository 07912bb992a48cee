// The map between two runs whose names differ, found from all the evidence there is: content, weights, call order and
// nesting, names, shapes. It is used at once, shown, and written in the form that --map reads.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compare/pairing.h"
#include "diagnose/case/weight_source.h"

namespace lockstep {

struct ProposedRule {
  MapRule rule;
  std::string why;     // "equal content", "same weights", "named like others" ...
  size_t tensors = 0;  // names it covers
};

struct FoundMap {
  std::vector<ProposedRule> rules;
  std::vector<std::string> unsure;  // "layers.0.q may be blocks.0.to_q or blocks.0.to_k"
};

// Whether names alone pair the two: then there is nothing to find.
bool names_agree(const RunView& reference, const RunView& candidate);

// For the records that `map` leaves. `weights_*`: the checkpoints, under the names of each run; null where they are not
// known.
FoundMap find_map(const RunView& reference, const RunView& candidate, const std::vector<MapRule>& map,
                  const std::string& only_glob, const WeightSource* weights_reference,
                  const WeightSource* weights_candidate);
std::vector<ProposedRule> propose_map(const RunView& reference, const RunView& candidate,
                                      const std::vector<MapRule>& map, const std::string& only_glob);

Json json_from(const std::vector<ProposedRule>& rules);  // what read_map reads

}  // namespace lockstep
