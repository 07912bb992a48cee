// Runs a program with the profiler inside it, and gives what it told.
#pragma once
#include "capture/recorded_program.h"
#include "toolbox/profile.h"

namespace lockstep {

// `evaluate`: where lazy graphs are evaluated, "stages", "modules" or "none". The run holds the profile.
RecordOutcome profile_program(RecordRequest request, const std::string& evaluate);

}  // namespace lockstep
