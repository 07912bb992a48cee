// A profile, and two of them, as tables.
#pragma once
#include "base/text.h"
#include "cli/terminal.h"
#include "toolbox/profile.h"

namespace lockstep {

Text text_from(const Terminal& terminal, const ProgramProfile& profile);
Text text_from(const Terminal& terminal, const ProfileComparison& comparison);

}  // namespace lockstep
