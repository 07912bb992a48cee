// The arithmetic that operations are made of, over arrays of any shape, with NumPy's broadcasting. Sums are in double.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "zoom/numbers.h"

namespace lockstep::zoom {

Numbers scalar(double value);
Numbers map(const Numbers& x, const std::function<double(double)>& function);
Numbers combine(const Numbers& x, const Numbers& y, const std::function<double(double, double)>& function);
// [..., n, k] x [..., k, m] → [..., n, m], leading axes broadcast.
Numbers multiply_matrices(const Numbers& x, const Numbers& y);
// Over these axes (negative count from the end; none: all), `start` folded with each element.
Numbers reduce(const Numbers& x, std::vector<int> axes, bool keep, const std::function<double(double, double)>& fold,
               double start = 0);
Numbers mean(const Numbers& x, std::vector<int> axes, bool keep);
Numbers softmax(const Numbers& x, int axis);
Numbers permute(const Numbers& x, const std::vector<int>& axes);
Numbers concatenate(std::span<const Numbers* const> parts, int axis);
Numbers broadcast(const Numbers& x, const Shape& shape);

}  // namespace lockstep::zoom
