// One comparison of two tensors as a page of text.
#pragma once
#include <string>

#include "cli/terminal.h"
#include "measure/metrics.h"

namespace lockstep {

Text text_from_comparison(const TensorComparison& comparison, const Terminal& terminal);
std::string text_from_tolerance(const Tolerance& tolerance);  // "|c - r| <= 1e-05 + 1.3e-06 |r|  (f32)"

}  // namespace lockstep
