// Does the error grow smoothly along the blocks, as rounding does, or does it jump?
#pragma once
#include <string>
#include <vector>

namespace lockstep {

struct Growth {
  std::string kind;        // "none", "smooth", "step"
  double rate = 1;         // median factor per stage
  double jump = 1;         // the largest factor between neighbours
  size_t jump_at = 0;      // index of the stage after the jump
  std::string at;          // its name
  size_t jump_result = 0;  // its index in the comparison
  std::string words;
};

Growth fit_growth(const std::vector<double>& errors, const std::vector<std::string>& names);

}  // namespace lockstep
