#include "compare/refuted_pairs.h"

#include <algorithm>
#include <set>
#include <utility>

namespace lockstep {
namespace {

constexpr double kKnownContent = 3;  // alike enough to know a tensor by

using Nodes = std::set<std::pair<size_t, size_t>>;  // of the reference, of the candidate

// Calls with others inside them that give the same on both sides.
Nodes equal_calls(const std::vector<Thought>& thoughts, const PairingGraph& reference, const PairingGraph& candidate) {
  Nodes out;
  for (const Thought& thought : thoughts) {
    const PairingNode &a = reference.nodes[thought.r], &b = candidate.nodes[thought.c];
    if (thought.equal && !a.input && !b.input && !a.children.empty() && !b.children.empty())
      out.insert({thought.r, thought.c});
  }
  return out;
}

// The calls that a node lies in, by what they give.
std::vector<size_t> calls_around(const PairingGraph& graph, size_t node) {
  std::vector<size_t> out;
  for (size_t up = graph.nodes[node].parent; up != SIZE_MAX; up = graph.nodes[up].parent)
    out.push_back(graph.nodes[up].input && graph.nodes[up].twin != SIZE_MAX ? graph.nodes[up].twin : up);
  return out;
}

bool are_inside_one_of(const Nodes& calls, const std::vector<size_t>& above_r, const std::vector<size_t>& above_c) {
  for (const size_t r : above_r)
    for (const size_t c : above_c)
      if (calls.contains({r, c})) return true;
  return false;
}

}  // namespace

// Two layers that have nothing in common are no pair, whatever place and order say, where one of them is known
// elsewhere by its values, or where one has weights and the other none. Neither are two that are not much alike in a
// call that gives the same on both sides: what differs in it would show. Calls that hold others may hand on the wrong
// tensor; so may a layer that is known by its weights, its name or by what it is given.
void forget_refuted(std::vector<Thought>& thoughts, const PairingGraph& reference, const PairingGraph& candidate) {
  std::vector<double> best_r(reference.nodes.size()), best_c(candidate.nodes.size());
  for (const Thought& thought : thoughts) {
    best_r[thought.r] = std::max(best_r[thought.r], thought.content);
    best_c[thought.c] = std::max(best_c[thought.c], thought.content);
  }
  const Nodes equal = equal_calls(thoughts, reference, candidate);
  std::vector<std::vector<size_t>> above_r, above_c;
  for (size_t n = 0; n < reference.nodes.size(); ++n) above_r.push_back(calls_around(reference, n));
  for (size_t n = 0; n < candidate.nodes.size(); ++n) above_c.push_back(calls_around(candidate, n));
  std::erase_if(thoughts, [&](const Thought& thought) {
    const PairingNode &a = reference.nodes[thought.r], &b = candidate.nodes[thought.c];
    if (!a.children.empty() && !b.children.empty()) return false;
    if (thought.same_given || thought.weights > 0 || a.segments.back() == b.segments.back()) return false;
    if (thought.known && !thought.equal && thought.same_shape && thought.content < kKnownContent &&
        are_inside_one_of(equal, above_r[thought.r], above_c[thought.c]))
      return true;
    if (thought.content > 0) return false;
    return std::max(best_r[thought.r], best_c[thought.c]) >= kKnownContent || (thought.known && thought.lacks_weights);
  });
  // What goes into two calls whose results cannot be one is no pair either, unless it is equal.
  Nodes left;
  for (const Thought& thought : thoughts) left.insert({thought.r, thought.c});
  std::erase_if(thoughts, [&](const Thought& thought) {
    const PairingNode &a = reference.nodes[thought.r], &b = candidate.nodes[thought.c];
    return a.input && !thought.equal && a.twin != SIZE_MAX && b.twin != SIZE_MAX && !left.contains({a.twin, b.twin});
  });
}

}  // namespace lockstep
