// The ways in which a value of yours may stand where one of the reference's does: frameworks order axes differently.
#pragma once
#include <memory>
#include <vector>

#include "zoom/numbers.h"

namespace lockstep::zoom {

// Reshaped first, then with its axes in every order that gives the wanted sizes. None where the counts differ, or where
// there are too many elements to try.
std::vector<std::shared_ptr<const Numbers>> forms_of(const Numbers& mine, const Shape& wanted);

}  // namespace lockstep::zoom
