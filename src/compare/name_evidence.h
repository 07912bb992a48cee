// What names say about who is whom: words that two names share, and ways of renaming that pairs known already teach
// (another prefix, another word for the same place in every block).
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compare/pairing_graph.h"

namespace lockstep {

// Of two names alone: the ends that are the same, words in common, the number of the block.
double name_likeness(const PairingNode& reference, const PairingNode& candidate);

// Renamings learned from pairs.
class LearnedNames {
 public:
  void learn(const PairingNode& reference, const PairingNode& candidate);
  // How strongly the pairs so far say that these two are one: 0 when they say nothing, below when they say otherwise.
  double support(const PairingNode& reference, const PairingNode& candidate) const;

 private:
  using Numbers = std::vector<int64_t>;
  struct Example {
    Numbers reference, candidate;
  };
  static bool follows(const Example& example, const Numbers& reference, const Numbers& candidate);
  std::map<std::pair<std::string, std::string>, std::vector<Example>> by_patterns_;
  std::map<std::string, std::map<std::string, size_t>> patterns_of_;  // candidate's → the reference's
  std::map<std::pair<std::string, std::string>, size_t> prefixes_;
};

}  // namespace lockstep
