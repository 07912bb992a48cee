// What every backend asks of a linear weight before it multiplies by it.
#pragma once
#include "backend/kernels.h"

namespace lockstep {

// Which dtypes a dense weight and the tables of a quantised one may have, and their names in a message.
struct WeightTypes {
  bool (*takes)(DType) = is_floating;
  const char* names = "a floating type";
};

void check_weight(const LinearWeight& weight, const WeightTypes& types = {});

}  // namespace lockstep
