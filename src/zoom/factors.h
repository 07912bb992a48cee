// Arrays that differ by a factor alone: one number, or one for each element of the last axis.
#pragma once
#include <optional>

#include "zoom/numbers.h"

namespace lockstep::zoom {

// The number that `a` is `b` times, in row-major order; nothing where none is, or where it is 1.
std::optional<double> common_factor(const Numbers& a, const Numbers& b, double tolerance);

// Whether `a` is `b` with each slice along the last axis multiplied by its own number of `factors`.
bool is_scaled_by(const Numbers& a, const Numbers& b, const Numbers& factors, double tolerance);

}  // namespace lockstep::zoom
