#include "measure/region.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "measure/axis_words.h"

namespace lockstep {
namespace {

// Share of bad elements in each slice of one axis.
std::vector<double> bad_shares(const std::vector<bool>& bad, const Shape& shape, size_t axis) {
  int64_t inner = 1;
  for (size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  const int64_t n = shape[axis];
  std::vector<double> counts(static_cast<size_t>(n));
  for (size_t i = 0; i < bad.size(); ++i)
    if (bad[i]) ++counts[static_cast<size_t>(static_cast<int64_t>(i) / inner % n)];
  const double slice = static_cast<double>(bad.size()) / static_cast<double>(n);
  for (double& count : counts) count /= slice;
  return counts;
}

std::string place_of(size_t element, const Shape& shape) {
  std::vector<int64_t> at(shape.size());
  auto rest = static_cast<int64_t>(element);
  for (size_t axis = shape.size(); axis-- > 0;) at[axis] = rest % shape[axis], rest /= shape[axis];
  return to_string(Shape(at.begin(), at.end()));
}

// Nothing inside, and something on each of the four sides.
bool is_border(const std::vector<bool>& bad, const Shape& shape, size_t row, size_t column) {
  if (shape[row] < 3 || shape[column] < 3) return false;
  const auto stride_of = [&](size_t axis) {
    int64_t stride = 1;
    for (size_t i = axis + 1; i < shape.size(); ++i) stride *= shape[i];
    return stride;
  };
  const int64_t row_stride = stride_of(row), column_stride = stride_of(column);
  size_t inside = 0, count = 0, sides[4] = {};
  for (size_t i = 0; i < bad.size(); ++i) {
    if (!bad[i]) continue;
    const int64_t y = static_cast<int64_t>(i) / row_stride % shape[row],
                  x = static_cast<int64_t>(i) / column_stride % shape[column];
    const bool on[4] = {y == 0, y == shape[row] - 1, x == 0, x == shape[column] - 1};
    ++count;
    inside += std::none_of(on, on + 4, [](bool b) { return b; });
    for (size_t side = 0; side < 4; ++side) sides[side] += on[side];
  }
  return inside * 100 <= count && std::all_of(sides, sides + 4, [&](size_t n) { return n * 16 > count; });
}

// A frame is a picture's, whatever the axes are called; where the words know the rows these alone are asked.
bool is_border(const std::vector<bool>& bad, const Shape& shape, const std::vector<std::string>& words) {
  for (size_t axis = 0; axis + 1 < words.size(); ++axis) {
    const bool rows = words[axis] == "row" && words[axis + 1] == "column",
               unknown = words.size() == 4 && axis > 0 && words[axis].starts_with("index");
    if ((rows || unknown) && is_border(bad, shape, axis, axis + 1)) return true;
  }
  return false;
}

}  // namespace

Region describe_region(std::string_view name, const Values& candidate, const Values& reference, double threshold) {
  Region region;
  if (candidate.shape != reference.shape || reference.empty()) return region;
  double norm = 0;
  int64_t finite = 0;
  for (const float value : reference.v)
    if (std::isfinite(value)) norm += static_cast<double>(value) * value, ++finite;
  const double limit = threshold * (finite ? std::sqrt(norm / static_cast<double>(finite)) : 1);
  std::vector<bool> bad(reference.v.size());
  int64_t count = 0;
  for (size_t i = 0; i < bad.size(); ++i) {
    const float c = candidate.v[i], r = reference.v[i];
    bad[i] = std::isfinite(c) && std::isfinite(r) ? std::fabs(static_cast<double>(c) - r) > limit
                                                  : !(c == r || (std::isnan(c) && std::isnan(r)));
    count += bad[i];
  }
  region.bad_fraction = static_cast<double>(count) / static_cast<double>(bad.size());
  if (count == 0) return region;
  const std::string place =
      place_of(static_cast<size_t>(std::find(bad.begin(), bad.end(), true) - bad.begin()), reference.shape);
  if (count == 1) {
    region.words = "one element, " + place;
    return region;
  }
  const std::vector<std::string> words = axis_words(name, reference.shape);
  region.border_only = is_border(bad, reference.shape, words);
  if (region.border_only) {
    region.words = "only the border rows and columns";
    return region;
  }
  double marked_elements = 1;
  for (size_t axis = 0; axis < reference.shape.size(); ++axis) {
    if (reference.shape[axis] < 2) continue;
    const std::vector<double> shares = bad_shares(bad, reference.shape, axis);
    const double most = *std::max_element(shares.begin(), shares.end());
    std::vector<bool> marked(shares.size());
    for (size_t i = 0; i < shares.size(); ++i) marked[i] = shares[i] > 0.3 * most;
    marked_elements *= static_cast<double>(std::count(marked.begin(), marked.end(), true));
    const std::string set = index_set_words(words[axis], marked);
    if (!set.empty()) region.words += (region.words.empty() ? "" : "; ") + set;
  }
  // A handful of elements fills no rows and channels: then these are where the elements happen to be.
  constexpr int64_t kHandful = 64;
  if (count <= kHandful && 2 * static_cast<double>(count) <= marked_elements) {
    region.words = fmt::format("{} elements here and there, the first is {}", count, place);
    return region;
  }
  if (region.words.empty())
    region.words = region.bad_fraction > 0.5
                       ? "everywhere"
                       : fmt::format("scattered, {:.2g} % of the elements", 100 * region.bad_fraction);
  return region;
}

}  // namespace lockstep
