// Of two steps, where on their call chains they meet.
#pragma once
#include <optional>
#include <utility>

#include "zoom/tape.h"

namespace lockstep::zoom {

// The frames, counted from the innermost line, in which both chains are in one execution of one function; nothing where
// they meet in no line of the program's.
std::optional<std::pair<int, int>> meeting_frames(const Step& a, const Step& b);

}  // namespace lockstep::zoom
