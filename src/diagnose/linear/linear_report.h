// How a finding about a linear layer is worded: the reference's formula first, then what yours does to its weight.
#pragma once
#include <string>
#include <utility>

#include "diagnose/linear/linear_probe.h"
#include "diagnose/search/report.h"

namespace lockstep {

class LinearReport {
 public:
  LinearReport(const LinearProbe& probe, double reference_residual, Findings& out)
      : report_("x W^T + b with W = " + probe.failing().module + ".weight", reference_residual, out),
        region_(probe.region()) {}
  bool add(Cause cause, const std::string& yours, std::string fix, double residual, double complexity,
           Blame blame = Blame::kWeights) const {
    return report_.add({cause, std::move(fix), blame}, yours + region_, residual, complexity);
  }

 private:
  Report report_;
  std::string region_;  // empty: all outputs
};

// What can be said of the weight or the input when the layer's own weight was meant; false when nothing was found.
bool search_changed_weight(const LinearProbe& probe, const LinearReport& report, Findings& out);
bool search_changed_input(const LinearProbe& probe, const LinearReport& report);

// Are yours the rows of other weights beside it, in another order?
bool search_rows_elsewhere(const LinearProbe& probe, const LinearReport& report);

// A factor of its own for each input.
bool search_column_scales(const LinearProbe& probe, const LinearReport& report, Findings& out);

// Outputs in the order in which eight of them are packed into a word.
bool search_packed_rows(const LinearProbe& probe, const LinearReport& report);

// Only some of the inputs count, some twice, or a part of them meets the weights of another.
bool search_input_parts(const LinearProbe& probe, const LinearReport& report);

// The weight in few bits, taken apart in the precision that the model is held in.
bool search_quantised_as_held(const LinearProbe& probe, const LinearReport& report);

// The weight in few bits, put together otherwise than it was taken apart.
bool search_quantised_otherwise(const LinearProbe& probe, const LinearReport& report);

// The right weight and something of low rank: an adapter, or a branch that is missing.
bool search_low_rank(const LinearProbe& probe, const LinearReport& report);

// Its numbers with steps of any size for each group.
bool search_group_steps(const LinearProbe& probe, const LinearReport& report);

}  // namespace lockstep
