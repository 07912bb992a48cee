// The sigmas of a sampler, in words.
#pragma once
#include <cmath>
#include <string>
#include <vector>

namespace lockstep {

struct Schedule {
  std::string words;
  double residual = INFINITY;  // largest difference of a sigma
};

// Flow matching schedules: even steps, shifted by mu, stretched to end at a terminal value. The last sigma is 0.
Schedule explain_schedule(const std::vector<double>& sigmas);
std::string numbers(const std::vector<double>& x);

}  // namespace lockstep
