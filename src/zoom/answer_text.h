// An answer for people and for machines.
#pragma once
#include "base/json.h"
#include "base/text.h"
#include "zoom/search.h"

namespace lockstep::zoom {

Json json_from(const Answer& answer, const Side& reference, const Side& yours);
// Both sources stand side by side where `width` columns allow it, else one below the other.
Text text_from(const Answer& answer, const Side& reference, const Side& yours, bool color, int width);

}  // namespace lockstep::zoom
