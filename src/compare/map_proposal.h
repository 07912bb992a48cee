// Names differ between two implementations: which tensor is probably which, from order, shape and content. A proposal:
// the user reads it, edits it, and gives it back as a map.
#pragma once
#include <string>
#include <vector>

#include "compare/pairing.h"

namespace lockstep {

struct ProposedRule {
  MapRule rule;
  std::string why;     // "equal content", "similar content", "order and shape"
  size_t tensors = 0;  // names it covers
};

// For the records that `map` and their names leave without a partner.
std::vector<ProposedRule> propose_map(const RunView& reference, const RunView& candidate,
                                      const std::vector<MapRule>& map, const std::string& only_glob);
Json json_from(const std::vector<ProposedRule>& proposal);  // what read_map reads

}  // namespace lockstep
