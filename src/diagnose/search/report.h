// How a family says what it found: the reference's formula once, then for each finding what yours does in its place.
#pragma once
#include <string>
#include <utility>

#include "diagnose/case/family.h"

namespace lockstep {

// What was done otherwise.
struct EditName {
  Cause cause;
  std::string fix{};  // empty: what the table of causes says
  Blame blame = Blame::kNone;
};

class Report {
 public:
  // `residual`: what the formula leaves unexplained of the reference.
  Report(std::string formula, double residual, Findings& out)
      : formula_(std::move(formula)), residual_(residual), out_(out) {}

  const std::string& formula() const { return formula_; }
  // True, so that a search can end with it.
  bool add(EditName name, const std::string& yours, double residual, double complexity = 1) const {
    out_.push_back({.cause = name.cause,
                    .explanation = "reference: " + formula_ + "; yours: " + yours,
                    .fix = std::move(name.fix),
                    .residual_reference = residual_,
                    .residual = residual,
                    .complexity = complexity,
                    .blame = name.blame});
    return true;
  }

 private:
  std::string formula_;
  double residual_;
  Findings& out_;
};

}  // namespace lockstep
