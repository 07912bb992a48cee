// A run's health as people read it.
#pragma once
#include "base/text.h"
#include "toolbox/run_health.h"

namespace lockstep {

Text text_from(const RunHealth& health, const Run& run);

}  // namespace lockstep
