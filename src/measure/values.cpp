#include "measure/values.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "measure/small_solve.h"
#include "tensor/convert.h"

namespace lockstep {

Values values_from(const Tensor& tensor) {
  return {tensor.shape(), to_floats(tensor)};
}

Values make_values(Shape shape) {
  Values out;
  out.v.resize(static_cast<size_t>(checked_numel(shape)));
  out.shape = std::move(shape);
  return out;
}

double squared_norm(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return sum;
}

double dot(std::span<const float> a, std::span<const float> b) {
  constexpr size_t kLanes = 16;  // sums of their own: one alone would wait for each addition
  double sums[kLanes] = {};
  const size_t n = std::min(a.size(), b.size()), whole = n - n % kLanes;
  for (size_t i = 0; i < whole; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += static_cast<double>(a[i + lane]) * b[i + lane];
  double sum = 0;
  for (size_t i = whole; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  for (const double lane : sums) sum += lane;
  return sum;
}

double rms(std::span<const float> x) {
  return x.empty() ? 0 : std::sqrt(squared_norm(x) / static_cast<double>(x.size()));
}

double relative_error(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    difference += d * d;
    norm += static_cast<double>(b[i]) * b[i];
  }
  if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
  if (norm == 0) return difference == 0 ? 0 : std::numeric_limits<double>::infinity();
  return std::sqrt(difference / norm);
}

double correlation(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size() || a.empty()) return 0;
  double sa = 0, sb = 0;
  for (size_t i = 0; i < a.size(); ++i) sa += a[i], sb += b[i];
  const double n = static_cast<double>(a.size()), ma = sa / n, mb = sb / n;
  double aa = 0, bb = 0, ab = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i] - ma, y = b[i] - mb;
    aa += x * x, bb += y * y, ab += x * y;
  }
  return aa == 0 || bb == 0 ? 0 : ab / std::sqrt(aa * bb);
}

Values permuted(const Values& x, const std::vector<int>& axes) {
  Values out;
  const Strides from_all = contiguous_strides(x.shape);
  Strides from_step;
  for (const int axis : axes) {
    out.shape.push_back(x.shape[static_cast<size_t>(axis)]);
    from_step.push_back(from_all[static_cast<size_t>(axis)]);
  }
  if (axes.size() < 2 || x.v.empty()) return out.v = x.v, out;
  out.v.resize(x.v.size());
  const Strides to_step = contiguous_strides(out.shape);
  // Two axes, the last of either side, go in squares: both sides then stay in the cache. The others are counted
  // through.
  constexpr int64_t kSquare = 32;
  const size_t last = axes.size() - 1,
               deepest =
                   static_cast<size_t>(std::find(axes.begin(), axes.end(), static_cast<int>(last)) - axes.begin()),
               other = deepest == last ? last - 1 : deepest;
  const int64_t rows = out.shape[other], columns = out.shape[last];
  std::vector<int64_t> index(axes.size(), 0);
  int64_t from = 0, to = 0;
  for (int64_t planes = x.size() / (rows * columns); planes > 0; --planes) {
    for (int64_t i0 = 0; i0 < rows; i0 += kSquare)
      for (int64_t j0 = 0; j0 < columns; j0 += kSquare)
        for (int64_t i = i0; i < std::min(i0 + kSquare, rows); ++i)
          for (int64_t j = j0; j < std::min(j0 + kSquare, columns); ++j)
            out.v[static_cast<size_t>(to + i * to_step[other] + j)] =
                x.v[static_cast<size_t>(from + i * from_step[other] + j * from_step[last])];
    for (size_t axis = last; axis-- > 0;) {
      if (axis == other) continue;
      from += from_step[axis], to += to_step[axis];
      if (++index[axis] < out.shape[axis]) break;
      from -= from_step[axis] * out.shape[axis], to -= to_step[axis] * out.shape[axis];
      index[axis] = 0;
    }
  }
  return out;
}

Values reshaped(Values x, Shape shape) {
  if (checked_numel(shape) != x.size())
    fail(Code::kInternal, "reshaped", "the sizes differ", {.expected = to_string(x.shape), .got = to_string(shape)});
  x.shape = std::move(shape);
  return x;
}

Values without_unit_axes(Values x) {
  x.shape.erase(std::remove(x.shape.begin(), x.shape.end(), 1), x.shape.end());
  if (x.shape.empty()) x.shape = {x.size()};
  return x;
}

bool same_size_shape(const Shape& a, const Shape& b) {
  Shape x = a, y = b;
  x.erase(std::remove(x.begin(), x.end(), 1), x.end());
  y.erase(std::remove(y.begin(), y.end(), 1), y.end());
  return x == y;
}

std::vector<int64_t> sample_indices(int64_t n, int64_t most) {
  std::vector<int64_t> out;
  if (n <= most) {
    for (int64_t i = 0; i < n; ++i) out.push_back(i);
    return out;
  }
  for (int64_t i = 0; i < most; ++i) out.push_back(i * (n - 1) / (most - 1));
  return out;
}

Values take_rows(const Values& x, const std::vector<int64_t>& rows) {
  Values out = make_values({static_cast<int64_t>(rows.size()), x.last()});
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy_n(x.row(rows[i]).begin(), x.last(), out.row(static_cast<int64_t>(i)).begin());
  return out;
}

std::vector<double> least_squares(const std::vector<std::span<const float>>& basis, std::span<const float> y) {
  const size_t n = basis.size();
  std::vector<double> gram(n * n), right(n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (size_t k = 0; k < y.size(); ++k) sum += static_cast<double>(basis[i][k]) * basis[j][k];
      gram[i * n + j] = gram[j * n + i] = sum;
    }
    double sum = 0;
    for (size_t k = 0; k < y.size(); ++k) sum += static_cast<double>(basis[i][k]) * y[k];
    right[i] = sum;
  }
  if (!solve_symmetric(gram, right, n)) std::fill(right.begin(), right.end(), 0.0);
  return right;
}

}  // namespace lockstep
