// An activation that is none of the known ones: a known form with another constant, or whatever curve it is.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "diagnose/search/functions.h"

namespace lockstep {

struct Curve {
  std::string words;
  double residual = 0, complexity = 1;
};

// What went in (x) and what came out (y). `limit`: a form that leaves no more explains y. `rough`: the share of the
// difference from the known function that may be other than a function of x.
std::optional<Curve> read_curve(const ElementFunction& known, std::span<const float> x, std::span<const float> y,
                                double limit, double rough);

}  // namespace lockstep
