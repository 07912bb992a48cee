// A weight drawn at random keeps the angles between its inputs, up to 1/sqrt(outputs): how a layer whose weight was
// never loaded is known where there are too few rows to solve for it.
#pragma once
#include <optional>
#include <string>

#include "measure/values.h"

namespace lockstep {

// How far the angles between the rows of y are from those between the rows of x, in words; nothing where they are not
// kept, or where the rows of x are so nearly square to each other that anything would keep them. `centred`: the mean
// of all rows is taken away first, and any bias with it.
std::optional<std::string> kept_angles(Values x, Values y, bool centred);

}  // namespace lockstep
