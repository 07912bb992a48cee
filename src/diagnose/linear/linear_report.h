// How a finding about a linear layer is worded: the reference's formula first, then what yours does to its weight.
#pragma once
#include <string>

#include "diagnose/linear/linear_probe.h"

namespace lockstep {

class LinearReport {
 public:
  LinearReport(const LinearProbe& probe, double reference_residual, Findings& out)
      : probe_(probe), r_(reference_residual), out_(out) {}
  bool add(Cause cause, const std::string& yours, std::string fix, double residual, double complexity,
           Blame blame = Blame::kWeights);

 private:
  const LinearProbe& probe_;
  double r_;
  Findings& out_;
};

// A factor of its own for each input.
bool search_column_scales(const LinearProbe& probe, LinearReport& report, Findings& out);

// Outputs in the order in which eight of them are packed into a word.
bool search_packed_rows(const LinearProbe& probe, LinearReport& report);

// Only some of the inputs count, some twice, or a part of them meets the weights of another.
bool search_input_parts(const LinearProbe& probe, LinearReport& report);

// The weight in few bits, taken apart in the precision that the model is held in.
bool search_quantised_as_held(const LinearProbe& probe, LinearReport& report);

// The weight in few bits, put together otherwise than it was taken apart.
bool search_quantised_otherwise(const LinearProbe& probe, LinearReport& report);

// The right weight and something of low rank: an adapter, or a branch that is missing.
bool search_low_rank(const LinearProbe& probe, LinearReport& report);

// Its numbers with steps of any size for each group.
bool search_group_steps(const LinearProbe& probe, LinearReport& report);

}  // namespace lockstep
