// Pairs that place, order and names would make, and that the values and weights of both runs rule out.
#pragma once
#include <vector>

#include "compare/pairing_graph.h"

namespace lockstep {

// That one tensor is the other, and what speaks for it.
struct Thought {
  size_t r = 0, c = 0;            // nodes
  double content = 0, fixed = 0;  // fixed: content, weights, names
  bool equal = false, known = false, same_given = false;
  bool lacks_weights = false;  // a layer of the reference with weights, and one of yours without
  bool same_shape = false;     // but for axes of 1: their elements can be told apart
  double weights = -1;
  double total = 0;
};

void forget_refuted(std::vector<Thought>& thoughts, const PairingGraph& reference, const PairingGraph& candidate);

}  // namespace lockstep
