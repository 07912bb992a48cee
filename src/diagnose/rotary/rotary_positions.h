// The positions behind a table of angles: columns that turn together are one axis, and where each token stands on it
// follows from the frequencies of its columns.
#pragma once
#include <string>
#include <vector>

#include "diagnose/case/causes.h"
#include "measure/values.h"

namespace lockstep {

// A complex table [.., tokens, pairs, 2] as angles.
struct Angles {
  int64_t tokens = 0, pairs = 0;
  std::vector<double> a;
  double at(int64_t t, int64_t i) const { return a[static_cast<size_t>(t * pairs + i)]; }
};
Angles angles_of(const Values& complex_table);
double wrapped(double angle);  // to within half a turn

// An axis of the table: columns that turn together, and where each token stands on it.
struct AxisPositions {
  int64_t first = 0;  // column
  std::vector<double> frequencies, positions;
};
// False when the table is no positions times frequencies to within `limit`.
bool read_positions(const Angles& table, double limit, std::vector<AxisPositions>& out);

// First columns of the axes, those along which no token moves among them.
std::vector<int64_t> axis_starts(const Angles& table);

struct PositionFinding {
  Cause cause;
  std::string yours, fix;  // empty cause: the candidate's angles are no positions on the reference's axes
  double misfit = 0;       // angle left over
};

// Both tables turn by the same frequencies: how do the candidate's positions differ from the reference's?
PositionFinding compare_positions(const Angles& candidate, const Angles& reference, double limit);

}  // namespace lockstep
