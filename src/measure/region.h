// Where in a tensor the error sits, in words.
#pragma once
#include <string>
#include <string_view>

#include "measure/values.h"

namespace lockstep {

struct Region {
  std::string words;         // "only tokens 256 and later; every odd channel", or "everywhere"
  double bad_fraction = 0;   // of the elements
  bool border_only = false;  // nothing but the outermost rows and columns
};

// An element is bad when it is off by more than `threshold`, relative to the reference's root mean square.
Region describe_region(std::string_view name, const Values& candidate, const Values& reference, double threshold);

}  // namespace lockstep
