// Sums over named axes: "bihd,bjhd->bhij".
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "zoom/numbers.h"

namespace lockstep::zoom {

// Of one or two operands. Nothing where the letters do not fit the shapes, or it would take too long.
std::optional<Numbers> einsum(const std::string& equation, const std::vector<const Numbers*>& operands);

}  // namespace lockstep::zoom
