// Steps that move elements without computing: where each element of the result came from.
#pragma once
#include <optional>

#include "zoom/side.h"

namespace lockstep::zoom {

// What the step would have made of `given` in the place of its first operand: every element of `output` is looked up in
// that operand, by the memory that both share, or by its value. Nothing where an element is not to be found there.
std::optional<Numbers> moved(const Side& side, const Step& step, int output, const Numbers& given);

// Only moves the elements of one value, or of several: reshape, transpose, getitem, concatenate, ...
bool only_moves(const Step& step);  // all of one
bool moves_some_or_joins(const Step& step);

// What `value` was with `count` elements, before steps that repeat it (heads that share a key); `value` where there is
// no such.
int before_repetition(const Side& side, int value, int64_t count);

// The one value that all elements of `value` come from by such steps, each exactly once; `value` itself where there is
// no such step, -1 where there are several. `steps` gets those in between.
int moved_from(const Side& side, int value, std::vector<int>& steps);

}  // namespace lockstep::zoom
