// Which module of one run is which of the other. Every kind of evidence has its strength: equal content beats all,
// the same weights come next, then what pairs known already say about their surroundings (the two sides of one call,
// parents, children, other blocks, order), then names and shapes. The surest pairs are made first and teach the rest;
// where two partners are as good, neither is taken.
#pragma once
#include <string>
#include <vector>

#include "compare/likeness.h"
#include "compare/pairing_graph.h"
#include "compare/weight_sketch.h"

namespace lockstep {

struct NodePair {
  size_t reference = 0, candidate = 0;  // nodes
  double score = 0;
  std::string why;
};

struct UnsureNode {
  size_t candidate = 0;
  std::vector<size_t> among;  // nodes of the reference, likeliest first
};

struct NodeMatching {
  std::vector<NodePair> pairs;  // in the candidate's order
  std::vector<UnsureNode> unsure;
};

// As many elements, or one axis that differs (padding, another part).
bool shapes_may_agree(const RecordedTensor& a, const RecordedTensor& b);

NodeMatching match_nodes(const RunView& reference, const PairingGraph& r, const RunView& candidate,
                         const PairingGraph& c, const ModuleWeights& weights_r, const ModuleWeights& weights_c,
                         LikenessOracle& likeness);

}  // namespace lockstep
