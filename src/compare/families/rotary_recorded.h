// Tables of cos and sin that a run has recorded, recognised by their names and shapes.
#pragma once
#include <vector>

#include "compare/families/family.h"

namespace lockstep {

enum class Rotation { kNone, kInterleaved, kHalves };

// Rotations by position: cos and sin, one row a token.
struct RotaryTable {
  std::vector<float> cos, sin;
  int64_t rows = 0, pairs = 0;  // pairs: d/2 columns; tables of d columns repeat themselves
  bool full_width = false;      // d columns (cos, sin of each element)
  bool interleaved = false;     // full width with neighbours equal, not halves

  bool rotate(std::vector<double>& x, int64_t row, Rotation rotation, int sign, bool exchanged = false,
              double share = 1, double turns = 1, bool from_zero = false) const;
};

// Those of the same step and pass as the failing tensor, latest first.
std::vector<RotaryTable> recorded_tables(Case& failing, bool candidate);

}  // namespace lockstep
