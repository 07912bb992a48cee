// Steps that move elements without computing: where each element of the result came from.
#pragma once
#include <optional>

#include "zoom/side.h"

namespace lockstep::zoom {

// What the step would have made of `given` in the place of its first operand: every element of `output` is looked up in
// that operand, by the memory that both share, or by its value. Nothing where an element is not to be found there.
std::optional<Numbers> moved(const Side& side, const Step& step, int output, const Numbers& given);

}  // namespace lockstep::zoom
