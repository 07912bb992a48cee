// Whether two values hold the same elements, and in which arrangement. Elements decide; nothing is taken on trust.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "zoom/numbers.h"

namespace lockstep::zoom {

enum class Arrangement { kNone, kReordered, kPermuted, kFlat, kSame };  // weakest first

struct Agreement {
  Arrangement arrangement = Arrangement::kNone;
  double distance = 1;    // relative, in the arrangement that fits best
  std::vector<int> axes;  // kPermuted: the axes of `b` (those of size 1 left out) in the order that gives `a`
  explicit operator bool() const { return arrangement != Arrangement::kNone; }
};

// kSame: shapes agree but for axes of size 1. kFlat: row-major order agrees. kPermuted: after a permutation of the axes
// of one of the two. kReordered: the slices along one axis are the same in another order.
Agreement agreement_of(const Numbers& a, const Numbers& b, double tolerance);

// b's elements in a's shape and places, as `found` (of a and b) says they lie; nothing where that cannot be worked out.
std::optional<Numbers> arranged_like(const Numbers& b, const Numbers& a, const Agreement& found);

std::string words_from(const Agreement& agreement);  // "", "reshaped", "axes permuted", "reordered along an axis"

}  // namespace lockstep::zoom
