// How large an error may be before it means something: from the precision of the two runs, the length of the sums, and
// what the stages before have already passed on.
#pragma once
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "diagnose/case/run_view.h"
#include "measure/pair_error.h"

namespace lockstep {

inline constexpr double kFloorFactor = 6;        // an error this many floors high is no rounding
inline constexpr double kSliceFloorFactor = 12;  // the worst row or channel has a longer tail
inline constexpr size_t kMemory = 12;            // good stages whose error may be inherited

// Unit roundoff a run computes in, by component ("transformer", "vae", ...): that of the coarsest float dtype that at
// least a fifth of its records have. One odd tensor is a finding, not a precision.
class RunPrecision {
 public:
  explicit RunPrecision(const RunView& run);
  double unit(const std::string& name) const;

 private:
  std::map<std::string, double> units_;
  double coarsest_ = 0;
};

double rounding_floor(double unit, int64_t reduction_length);  // one stage computed twice in that precision

// Walks the stages in execution order and keeps what they may have inherited.
class FloorWalk {
 public:
  struct Limits {
    double floor = 0, slice_floor = 0;
  };
  Limits limits(double stage_floor, double input_error, double input_slice) const;
  void pass(const PairError& error);  // a good stage

 private:
  std::deque<std::pair<double, double>> recent_;
};

bool is_beyond(const PairError& error, const FloorWalk::Limits& limits, double unit);

}  // namespace lockstep
