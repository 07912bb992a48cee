// The number a model is told: sigma, timestep or index?
#pragma once
#include "diagnose/case/family.h"

namespace lockstep {

void search_timestep_value(Case& failing, Findings& out);

}  // namespace lockstep
