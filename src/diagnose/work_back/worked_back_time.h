// A timestep that was not recorded, read back from its embedding of sines and cosines.
#pragma once
#include "diagnose/work_back/work_back.h"

namespace lockstep {

std::optional<WorkedBack> work_back_time(Case& failing);

}  // namespace lockstep
