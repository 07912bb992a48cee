// Which tensor of the candidate answers which of the reference.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "diagnose/case/run_view.h"

namespace lockstep {

// One line of a map file: names of the candidate (with `*` for anything and `#` for a whole number) to names of the
// reference (each takes over what the candidate's matched, in order), and what to do with the values first.
struct MapRule {
  std::string candidate, reference;
  std::vector<int> permute;    // axes of the candidate, in the reference's order
  std::vector<int64_t> slice;  // axis, begin, end
  std::optional<Shape> reshape = {};
  std::optional<DType> dtype = {};  // rounded to this first: what the reference keeps, or what both are to be held to
  std::optional<bool> input = {};   // only for inputs of modules, or only for what is none; a tensor that was named by
                                    // hand may be either
};

std::vector<MapRule> read_map(
    const fs::path& file);  // {"rules": [{"candidate": "...", "reference": "...", "permute": [...]}]}
std::optional<std::string> mapped_name(const MapRule& rule, const std::string& candidate_name);
Tensor apply_rule(const MapRule& rule, const Tensor& tensor);

struct Pair {
  size_t reference = 0, candidate = 0;  // indices of records
  int rule = -1;                        // of the map
  std::string how;                      // empty: same key; else "tags ignored", "by order", "by the map"
};

struct Pairing {
  std::vector<Pair> pairs;  // in the reference's order
  std::vector<size_t> only_reference, only_candidate;
  std::vector<std::string> other_counts;  // names that both have, but not equally often: said where not all are paired
};

Pairing pair_runs(const RunView& reference, const RunView& candidate, const std::vector<MapRule>& map,
                  const std::string& only_glob);

}  // namespace lockstep
