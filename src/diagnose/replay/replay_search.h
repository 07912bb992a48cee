// One of the stages between the last tensors that the candidate recorded and the bad one was done otherwise: which, and
// how? Each edit of each stage is replayed up to the bad tensor.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "diagnose/case/family.h"

namespace lockstep {

struct Replayed {
  std::vector<std::string> stages;  // what lies in between, in the order in which it runs
  std::vector<std::string> starts;  // where the replay starts: recorded by both, or taken to be right
  bool is_replayed = false;         // the stages make the reference's bad tensor from there
  std::optional<Finding> finding;
  size_t target = SIZE_MAX;  // the record that the finding explains
};

Replayed search_stages_between(Case& failing);

// A tensor of the candidate's whose partner is not sure: with one stage done otherwise, it is one of `targets` to the
// last digits, or the `likely` one as well as an explanation must be (SIZE_MAX: none is likely).
Replayed search_partner(Case& failing, std::vector<size_t> targets, size_t likely);

// The reference's tensor as its own formula makes it where what it is made from is off by a rounding. Nothing where
// the formula is not known.
std::optional<Values> moved_by_rounding(Case& pair, double unit);

}  // namespace lockstep
