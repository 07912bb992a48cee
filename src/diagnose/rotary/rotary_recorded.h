// Tables of cos and sin that a run has recorded, recognised by their names and shapes.
#pragma once
#include <vector>

#include "diagnose/case/family.h"
#include "diagnose/search/number_formats.h"

namespace lockstep {

enum class Rotation { kNone, kInterleaved, kHalves };
// Of a table, for a part of the head that turns: its first columns, or all of them thinned out (frequencies counted
// through that part), or its last; or in reverse order.
enum class Columns { kFirst, kSpread, kLast, kReversed };

// Some pairs one behind the other, and the elements they are made of.
struct PairBlock {
  int64_t first = 0, count = 0;
  friend bool operator==(const PairBlock&, const PairBlock&) = default;
};

// How one head's elements are turned by a row of the table; as it is: the whole head by its own angles.
struct Turning {
  Rotation rotation = Rotation::kNone;
  int sign = 1;
  bool cos_sin = false;    // exchanged
  bool mixed = false;      // each element by the angle that the other pairing gives it
  bool plus = false;       // no minus sign in either element of a pair
  bool cos_alone = false;  // the term of the partner is missing
  bool from_zero = false;  // the first token stands at 0 on every axis
  double share = 1;        // of the head
  bool own_pairs = false;  // pairs lie within the share, not in the whole head
  bool at_end = false;     // the share is the head's last part
  Columns columns = Columns::kFirst;
  double turns = 1;                    // factor on the angles
  Format held = nullptr;               // cos and sin in a poorer format
  std::vector<PairBlock> halved = {};  // parts of the head in which the first half turns with the second

  friend bool operator==(const Turning&, const Turning&) = default;
};

// Rotations by position: cos and sin, one row a token.
struct RotaryTable {
  std::vector<float> cos, sin;
  int64_t rows = 0, pairs = 0;  // pairs: d/2 columns; tables of d columns repeat themselves
  bool full_width = false;      // d columns (cos, sin of each element)
  bool interleaved = false;     // full width with neighbours equal, not halves

  // False where the table is none of this head's. A row beyond its end: where rows are positions in their order, the
  // angles go on; elsewhere the last row stands for it.
  bool rotate(std::vector<double>& x, int64_t row, const Turning& turning) const;
  double angle(int64_t row, int64_t pair) const;

 private:
  int64_t column(int64_t pair, int64_t turned, const Turning& turning) const;
  double step_of(int64_t first,
                 int64_t width) const;  // from one row to the next, in one column; 0: not always the same
};

// Those of the same step and pass as that record of the reference, and before it, latest first.
std::vector<RotaryTable> recorded_tables(Case& failing, bool candidate, size_t record);

// What most language models turn by, recorded or not: positions from 0 on, frequencies theta^-(i/pairs).
RotaryTable standard_table(int64_t rows, int64_t pairs, double theta);

}  // namespace lockstep
