#include "zoom/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace lockstep::zoom {
namespace {

size_t at(int64_t index) {
  return static_cast<size_t>(index);
}

size_t normal_axis(int axis, size_t rank) {
  const int normal = axis < 0 ? axis + static_cast<int>(rank) : axis;
  if (normal < 0 || normal >= static_cast<int>(rank))
    fail(Code::kBadInput, "zoom", "an axis beyond the array's", {.got = std::to_string(axis)});
  return static_cast<size_t>(normal);
}

// Strides that read `shape` as if it had been broadcast to `to`: 0 along repeated axes.
Strides broadcast_strides(const Shape& shape, const Shape& to) {
  const Strides packed = contiguous_strides(shape);
  Strides out(to.size(), 0);
  const size_t lead = to.size() - shape.size();
  for (size_t axis = 0; axis < shape.size(); ++axis) out[lead + axis] = shape[axis] == 1 ? 0 : packed[axis];
  return out;
}

// Calls visit(offset by strides a, offset by strides b) for every place of `shape` in row-major order.
template <typename Visit>
void walk(const Shape& shape, const Strides& a, const Strides& b, Visit visit) {
  const int64_t count = checked_numel(shape);
  if (count == 0) return;
  const size_t rank = shape.size();
  std::vector<int64_t> place(rank, 0);
  int64_t at_a = 0, at_b = 0;
  for (int64_t i = 0; i < count; ++i) {
    visit(at_a, at_b);
    for (size_t axis = rank; axis-- > 0;) {
      at_a += a[axis];
      at_b += b[axis];
      if (++place[axis] < shape[axis]) break;
      at_a -= a[axis] * shape[axis];
      at_b -= b[axis] * shape[axis];
      place[axis] = 0;
    }
  }
}

}  // namespace

Numbers scalar(double value) {
  return {{}, {static_cast<float>(value)}};
}

Numbers map(const Numbers& x, const std::function<double(double)>& function) {
  Numbers out{x.shape, std::vector<float>(x.values.size())};
  for (size_t i = 0; i < x.values.size(); ++i) out.values[i] = static_cast<float>(function(x.values[i]));
  return out;
}

Numbers combine(const Numbers& x, const Numbers& y, const std::function<double(double, double)>& function) {
  Numbers out{broadcast_shapes(x.shape, y.shape), {}};
  out.values.reserve(at(checked_numel(out.shape)));
  walk(out.shape, broadcast_strides(x.shape, out.shape), broadcast_strides(y.shape, out.shape),
       [&](int64_t a, int64_t b) {
         out.values.push_back(static_cast<float>(function(x.values[at(a)], y.values[at(b)])));
       });
  return out;
}

Numbers multiply_matrices(const Numbers& x, const Numbers& y) {
  if (x.shape.size() < 2 || y.shape.size() < 2 || x.shape.back() != y.shape[y.shape.size() - 2])
    fail(Code::kBadInput, "zoom", "matrices that cannot be multiplied",
         {.got = to_string(x.shape) + " and " + to_string(y.shape)});
  const int64_t rows = x.shape[x.shape.size() - 2], inner = x.shape.back(), columns = y.shape.back();
  const Shape lead_x(x.shape.begin(), x.shape.end() - 2), lead_y(y.shape.begin(), y.shape.end() - 2);
  Numbers out{broadcast_shapes(lead_x, lead_y), {}};
  const Shape lead = out.shape;
  out.shape.insert(out.shape.end(), {rows, columns});
  out.values.resize(at(checked_numel(out.shape)));
  int64_t done = 0;
  walk(lead, broadcast_strides(lead_x, lead), broadcast_strides(lead_y, lead), [&](int64_t a, int64_t b) {
    const float* left = x.values.data() + a * rows * inner;
    const float* right = y.values.data() + b * inner * columns;
    float* made = out.values.data() + done * rows * columns;
    const bool large = rows * inner * columns > 1 << 20;
#pragma omp parallel for schedule(static) if (large)
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<double> sums(at(columns), 0.0);
      for (int64_t k = 0; k < inner; ++k) {
        const double factor = left[row * inner + k];
        const float* of = right + k * columns;
        double* to = sums.data();
#pragma omp simd
        for (int64_t column = 0; column < columns; ++column) to[column] += factor * of[column];
      }
      for (int64_t column = 0; column < columns; ++column)
        made[row * columns + column] = static_cast<float>(sums[at(column)]);
    }
    ++done;
  });
  return out;
}

Numbers reduce(const Numbers& x, std::vector<int> axes, bool keep, const std::function<double(double, double)>& fold,
               double start) {
  const size_t rank = x.shape.size();
  std::vector<bool> gone(rank, axes.empty());
  for (const int axis : axes) gone[normal_axis(axis, rank)] = true;
  Shape kept = x.shape;
  for (size_t axis = 0; axis < rank; ++axis)
    if (gone[axis]) kept[axis] = 1;
  std::vector<double> sums(at(checked_numel(kept)), start);
  walk(x.shape, contiguous_strides(x.shape), broadcast_strides(kept, x.shape),
       [&](int64_t from, int64_t to) { sums[at(to)] = fold(sums[at(to)], x.values[at(from)]); });
  Numbers out;
  out.values.assign(sums.begin(), sums.end());
  for (size_t axis = 0; axis < rank; ++axis)
    if (keep || !gone[axis]) out.shape.push_back(kept[axis]);
  return out;
}

Numbers mean(const Numbers& x, std::vector<int> axes, bool keep) {
  Numbers out = reduce(x, std::move(axes), keep, [](double sum, double value) { return sum + value; });
  const double share =
      out.values.empty() ? 1 : static_cast<double>(x.values.size()) / static_cast<double>(out.values.size());
  for (float& value : out.values) value = static_cast<float>(value / share);
  return out;
}

Numbers softmax(const Numbers& x, int axis) {
  const Numbers most = reduce(
      x, {axis}, true, [](double a, double b) { return std::max(a, b); }, -std::numeric_limits<double>::infinity());
  const Numbers raised = combine(x, most, [](double value, double top) { return std::exp(value - top); });
  const Numbers sums = reduce(raised, {axis}, true, [](double a, double b) { return a + b; });
  return combine(raised, sums, [](double value, double sum) { return value / sum; });
}

Numbers permute(const Numbers& x, const std::vector<int>& axes) {
  const size_t rank = x.shape.size();
  const Strides packed = contiguous_strides(x.shape);
  Numbers out;
  Strides strides;
  std::vector<bool> used(rank, false);
  for (const int axis : axes) {
    const size_t normal = normal_axis(axis, rank);
    if (used[normal]) fail(Code::kBadInput, "zoom", "an axis twice in a permutation");
    used[normal] = true;
    out.shape.push_back(x.shape[normal]);
    strides.push_back(packed[normal]);
  }
  if (axes.size() != rank) fail(Code::kBadInput, "zoom", "a permutation that leaves axes out");
  out.values.reserve(x.values.size());
  walk(out.shape, strides, strides, [&](int64_t from, int64_t) { out.values.push_back(x.values[at(from)]); });
  return out;
}

Numbers concatenate(std::span<const Numbers* const> parts, int axis) {
  Numbers out{parts.front()->shape, {}};
  const size_t along = normal_axis(axis, out.shape.size());
  out.shape[along] = 0;
  for (const Numbers* part : parts) {
    if (part->shape.size() != out.shape.size()) fail(Code::kBadInput, "zoom", "arrays of other ranks joined");
    out.shape[along] += part->shape[along];
  }
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < along; ++i) outer *= out.shape[i];
  for (size_t i = along + 1; i < out.shape.size(); ++i) inner *= out.shape[i];
  for (int64_t o = 0; o < outer; ++o)
    for (const Numbers* part : parts) {
      const int64_t run = part->shape[along] * inner;
      const auto from = part->values.begin() + o * run;
      out.values.insert(out.values.end(), from, from + run);
    }
  return out;
}

Numbers broadcast(const Numbers& x, const Shape& shape) {
  Numbers out{shape, {}};
  if (broadcast_shapes(x.shape, shape) != shape) fail(Code::kBadInput, "zoom", "a shape it cannot be broadcast to");
  const Strides strides = broadcast_strides(x.shape, shape);
  out.values.reserve(at(checked_numel(shape)));
  walk(shape, strides, strides, [&](int64_t from, int64_t) { out.values.push_back(x.values[at(from)]); });
  return out;
}

}  // namespace lockstep::zoom
