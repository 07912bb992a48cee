// Is one tensor a rearrangement of another? Found by content: factors of the axes put in another order (transposes,
// packing, patches, heads, strided memory read as contiguous), or slices of one axis moved about (rolled, reversed,
// halves exchanged, repeated), or of two at once.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/case/causes.h"
#include "measure/values.h"

namespace lockstep {

struct Rearrangement {
  Cause id;
  std::string words;    // "axes in the order 0, 2, 1"
  double residual = 0;  // relative error that is left
  int complexity = 1;
  Values restored;  // the reference's elements, arranged as the candidate has them
};

// candidate ~ rearranged(reference) to within `tolerance`; simplest first. The identity is never reported.
std::optional<Rearrangement> find_axis_order(const Values& candidate, const Values& reference, double tolerance);
std::optional<Rearrangement> find_slice_moves(std::string_view name, const Values& candidate, const Values& reference,
                                              double tolerance);
std::optional<Rearrangement> find_part_moves(std::string_view name, const Values& candidate, const Values& reference,
                                             double tolerance);
std::optional<Rearrangement> find_two_axis_moves(std::string_view name, const Values& candidate,
                                                 const Values& reference, double tolerance);
// Rows with a pitch read without it, or the reverse; padding and what lies beyond the end may hold anything.
std::optional<Rearrangement> find_padded_rows(const Values& candidate, const Values& reference, double tolerance);
std::vector<Rearrangement> find_rearrangements(std::string_view name, const Values& candidate, const Values& reference,
                                               double tolerance);

}  // namespace lockstep
