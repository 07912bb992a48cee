// The working form of diagnosis: a shape and its elements as floats, row major. Small enough to copy freely: large
// tensors are sampled before they come here.
#pragma once
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

struct Values {
  Shape shape;
  std::vector<float> v;

  int64_t size() const { return static_cast<int64_t>(v.size()); }
  bool empty() const { return v.empty(); }
  size_t rank() const { return shape.size(); }
  int64_t dim(int axis) const {
    return shape[axis < 0 ? shape.size() + static_cast<size_t>(axis) : static_cast<size_t>(axis)];
  }
  int64_t last() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const { return last() == 0 ? 0 : size() / last(); }
  std::span<const float> row(int64_t i) const { return {v.data() + i * last(), static_cast<size_t>(last())}; }
  std::span<float> row(int64_t i) { return {v.data() + i * last(), static_cast<size_t>(last())}; }
};

Values values_from(const Tensor& tensor);
Values make_values(Shape shape);  // zeros

double squared_norm(std::span<const float> x);
double dot(std::span<const float> a, std::span<const float> b);  // of the shorter one's length
double rms(std::span<const float> x);
// ||a - b|| / ||b||; sizes must agree. 0/0 is 0, x/0 is infinity.
double relative_error(std::span<const float> a, std::span<const float> b);
double correlation(std::span<const float> a, std::span<const float> b);

Values permuted(const Values& x, const std::vector<int>& axes);
Values reshaped(Values x, Shape shape);
Values without_unit_axes(Values x);
bool same_size_shape(const Shape& a, const Shape& b);  // equal after dropping axes of 1

// Rows [0, n) thinned to at most `most`, evenly spread, always with the first and the last.
std::vector<int64_t> sample_indices(int64_t n, int64_t most);
Values take_rows(const Values& x, const std::vector<int64_t>& rows);  // rows of the last axis; result [rows, last]

// Least squares for few unknowns: minimises ||sum_k c_k basis_k - y||. Singular systems give zero coefficients.
std::vector<double> least_squares(const std::vector<std::span<const float>>& basis, std::span<const float> y);

}  // namespace lockstep
