// x W^T + b for replays, which do thousands of them: four rows at a time.
#pragma once
#include "diagnose/replay/stage.h"
#include "measure/values.h"

namespace lockstep {

Flat row_product(const Flat& x, const Values& weight, const Flat& bias);  // weight [outputs, inputs]; bias may be empty

}  // namespace lockstep
