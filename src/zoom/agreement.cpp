#include "zoom/agreement.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace lockstep::zoom {
namespace {

constexpr int64_t kSamples = 192;
constexpr size_t kMostAxes = 6;
constexpr int64_t kMostSlices = 1 << 16;

// Strides that read a packed array of `shape` with its axes in the order `axes`.
Strides permuted_strides(const Shape& shape, const std::vector<int>& axes) {
  const Strides packed = contiguous_strides(shape);
  Strides out;
  for (const int axis : axes) out.push_back(packed[static_cast<size_t>(axis)]);
  return out;
}

int64_t source_of(int64_t flat, const Shape& permuted, const Strides& strides) {
  int64_t at = 0;
  for (size_t axis = permuted.size(); axis-- > 0;) {
    at += flat % permuted[axis] * strides[axis];
    flat /= permuted[axis];
  }
  return at;
}

// b's elements with its axes in another order, compared with a's in row-major order.
double permuted_distance(const std::vector<float>& a, const std::vector<float>& b, const Shape& shape,
                         const std::vector<int>& axes, double tolerance) {
  Shape permuted;
  for (const int axis : axes) permuted.push_back(shape[static_cast<size_t>(axis)]);
  const Strides strides = permuted_strides(shape, axes);
  const auto count = static_cast<int64_t>(a.size());
  std::vector<float> left, right;
  const int64_t samples = std::min(count, kSamples);
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t flat = (i * 2654435761LL + i * i) % count;  // spread over all axes
    left.push_back(a[static_cast<size_t>(flat)]);
    right.push_back(b[static_cast<size_t>(source_of(flat, permuted, strides))]);
  }
  // A sample of a value that agrees may err more than the whole does, but not by an order of magnitude.
  if (relative_distance(left.data(), right.data(), samples) > 8 * tolerance) return 1;
  std::vector<float> whole(a.size());
  for (int64_t i = 0; i < count; ++i)
    whole[static_cast<size_t>(i)] = b[static_cast<size_t>(source_of(i, permuted, strides))];
  return relative_distance(a.data(), whole.data(), count);
}

std::optional<Agreement> by_permutation(const Numbers& a, const Numbers& b, double tolerance) {
  const Shape shape = without_ones(b.shape);
  if (shape.size() < 2 || shape.size() > kMostAxes) return std::nullopt;
  std::vector<int> axes(shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  while (std::next_permutation(axes.begin(), axes.end())) {
    const double distance = permuted_distance(a.values, b.values, shape, axes, tolerance);
    if (distance <= tolerance) return Agreement{Arrangement::kPermuted, distance, axes};
  }
  return std::nullopt;
}

// A slice along an axis is recognised by two sums; equal sums may still be other elements, so these are compared after.
struct SliceKey {
  double sum, weighted;
  int64_t index;
};

std::vector<SliceKey> slice_keys(const Numbers& numbers, int64_t outer, int64_t size, int64_t inner) {
  std::vector<SliceKey> keys(static_cast<size_t>(size));
  for (int64_t s = 0; s < size; ++s) {
    SliceKey& key = keys[static_cast<size_t>(s)];
    key = {0, 0, s};
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) {
        const double value = numbers.values[static_cast<size_t>((o * size + s) * inner + i)];
        if (!std::isfinite(value)) continue;
        key.sum += value;
        key.weighted += value * (1 + static_cast<double>((o * inner + i) % 17));
      }
  }
  std::sort(keys.begin(), keys.end(), [](const SliceKey& x, const SliceKey& y) { return x.sum < y.sum; });
  return keys;
}

std::optional<Agreement> by_reordering(const Numbers& a, const Numbers& b, double tolerance) {
  const Shape shape = without_ones(b.shape);
  if (without_ones(a.shape) != shape || shape.empty()) return std::nullopt;
  const auto count = static_cast<int64_t>(a.values.size());
  int64_t outer = 1;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const int64_t size = shape[axis], inner = count / (outer * size);
    // One element a slice could be put in any order to fit.
    if (outer * inner >= 8 && size <= kMostSlices) {
      const std::vector<SliceKey> left = slice_keys(a, outer, size, inner), right = slice_keys(b, outer, size, inner);
      double difference = 0, squares = 0;
      bool fits = true;
      for (size_t s = 0; s < left.size() && fits; ++s) {
        for (int64_t o = 0; o < outer; ++o)
          for (int64_t i = 0; i < inner; ++i) {
            const double x = a.values[static_cast<size_t>((o * size + left[s].index) * inner + i)];
            const double y = b.values[static_cast<size_t>((o * size + right[s].index) * inner + i)];
            if (!std::isfinite(x) || !std::isfinite(y)) {
              fits &= x == y;
              continue;
            }
            difference += (x - y) * (x - y);
            squares += y * y;
          }
        fits &= difference <= 64 * tolerance * tolerance * (squares + 1e-30) + 1e-30;
      }
      if (fits && std::sqrt(difference / (squares + 1e-30)) <= tolerance)
        return Agreement{Arrangement::kReordered, std::sqrt(difference / (squares + 1e-30)), {static_cast<int>(axis)}};
    }
    outer *= size;
  }
  return std::nullopt;
}

}  // namespace

namespace {

// b with its axes (those of size 1 left out) in another order.
Numbers with_axes(const Numbers& b, const std::vector<int>& axes) {
  const Shape shape = without_ones(b.shape);
  Numbers out{{}, std::vector<float>(b.values.size())};
  for (const int axis : axes) out.shape.push_back(shape[static_cast<size_t>(axis)]);
  const Strides strides = permuted_strides(shape, axes);
  for (int64_t i = 0; i < b.count(); ++i)
    out.values[static_cast<size_t>(i)] = b.values[static_cast<size_t>(source_of(i, out.shape, strides))];
  return out;
}

// b's slices in the order of a's, as their sums tell.
Numbers with_slices(const Numbers& b, const Numbers& a, int axis) {
  const Shape shape = without_ones(b.shape);
  int64_t outer = 1;
  for (int i = 0; i < axis; ++i) outer *= shape[static_cast<size_t>(i)];
  const int64_t size = shape[static_cast<size_t>(axis)], inner = b.count() / (outer * size);
  const std::vector<SliceKey> left = slice_keys(a, outer, size, inner), right = slice_keys(b, outer, size, inner);
  Numbers out{a.shape, std::vector<float>(b.values.size())};
  for (size_t s = 0; s < left.size(); ++s)
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i)
        out.values[static_cast<size_t>((o * size + left[s].index) * inner + i)] =
            b.values[static_cast<size_t>((o * size + right[s].index) * inner + i)];
  return out;
}

}  // namespace

std::optional<Numbers> arranged_like(const Numbers& b, const Numbers& a, const Agreement& found) {
  if (!found || a.count() != b.count()) return std::nullopt;
  std::optional<Numbers> out;
  if (found.arrangement == Arrangement::kPermuted) {
    const size_t rank = found.axes.size();
    std::vector<int> inverse(rank);
    for (size_t i = 0; i < rank; ++i) inverse[static_cast<size_t>(found.axes[i])] = static_cast<int>(i);
    // The axes are b's, or, where only a could be permuted into b, a's: then b is a permutation of a, and is undone.
    if (rank == without_ones(b.shape).size()) out = with_axes(b, found.axes);
    if (!out || relative_distance(a.values.data(), out->values.data(), a.count()) > found.distance * 1.001 + 1e-12) {
      const Shape of_a = without_ones(a.shape);
      if (rank != of_a.size()) return std::nullopt;
      Numbers permuted = b;
      permuted.shape.clear();
      for (const int axis : found.axes) permuted.shape.push_back(of_a[static_cast<size_t>(axis)]);
      out = with_axes(permuted, inverse);
    }
  } else if (found.arrangement == Arrangement::kReordered) {
    out = with_slices(b, a, found.axes.front());
  } else {
    out = b;
  }
  if (!out) return std::nullopt;
  out->shape = a.shape;
  if (relative_distance(a.values.data(), out->values.data(), a.count()) > found.distance * 1.001 + 1e-12)
    return std::nullopt;
  return out;
}

Agreement agreement_of(const Numbers& a, const Numbers& b, double tolerance) {
  if (a.count() != b.count()) return {};
  if (a.count() == 0) return {Arrangement::kSame, 0, {}};  // nothing there is the same nothing
  const double flat = relative_distance(a.values.data(), b.values.data(), a.count());
  const bool same_shape = without_ones(a.shape) == without_ones(b.shape);
  if (flat <= tolerance) return {same_shape ? Arrangement::kSame : Arrangement::kFlat, flat, {}};
  if (a.count() < 8) return {};  // a handful of numbers fits by chance
  if (auto found = by_permutation(a, b, tolerance)) return *found;
  if (auto found = by_permutation(b, a, tolerance)) return *found;
  if (auto found = by_reordering(a, b, tolerance)) return *found;
  return {};
}

std::string words_from(const Agreement& agreement) {
  switch (agreement.arrangement) {
    case Arrangement::kFlat:
      return "reshaped";
    case Arrangement::kPermuted:
      return "axes permuted";
    case Arrangement::kReordered:
      return "reordered along an axis";
    default:
      return "";
  }
}

}  // namespace lockstep::zoom
