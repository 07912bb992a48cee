#include "diagnose/weight/weight_levels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/weight/weight_grid.h"

namespace lockstep {
namespace {

constexpr size_t kMostLevels = 256, kFewestPerLevel = 8;
constexpr int64_t kValuesOfAFirstLook = 1 << 12, kValuesLookedAt = 1 << 15;

// How many values there are, each within `noise` of itself and further from the next; 0: they are no such values.
size_t levels_of(std::vector<float> values, double noise) {
  std::sort(values.begin(), values.end());
  size_t count = values.empty() ? 0 : 1;
  double begin = values.empty() ? 0 : values[0];
  for (size_t i = 1; i < values.size(); ++i)
    if (const double gap = static_cast<double>(values[i]) - values[i - 1]; gap > 2 * noise) {
      if (++count > kMostLevels) return 0;
      begin = values[i];
    } else if (values[i] - begin > 2 * noise) {
      return 0;
    }
  return count * kFewestPerLevel <= values.size() ? count : 0;
}

// Values of these rows, each over the largest of its group, or from its lowest to its highest.
std::vector<float> in_groups(const Values& weight, const std::vector<int64_t>& rows, WeightGroups groups,
                             GroupEnds& ends, bool affine) {
  std::vector<float> out;
  const int64_t width = weight.last();
  out.reserve(rows.size() * static_cast<size_t>(width));
  for (const int64_t row : rows)
    for (int64_t i = 0; i < width; ++i) {
      const auto [low, high] = ends.of(groups.of(row, i, width));
      const double size = affine ? static_cast<double>(high) - low : std::max(std::fabs(low), std::fabs(high));
      const double value = weight.row(row)[static_cast<size_t>(i)] - (affine ? low : 0);
      if (size > 0) out.push_back(static_cast<float>(value / size));
    }
  return out;
}

}  // namespace

std::optional<FewLevels> find_few_levels(const Values& weight, double noise) {
  const auto some = [&](int64_t values) {
    return sample_indices(weight.rows(), std::max<int64_t>(1, values / weight.last()));
  };
  const std::vector<int64_t> few = some(kValuesOfAFirstLook), rows = some(kValuesLookedAt);
  EndsBySize by_size(weight);
  for (const WeightGroups groups : group_sizes(weight.shape))
    for (const bool affine : {false, true}) {
      GroupEnds& ends = by_size.of(groups);
      if (levels_of(in_groups(weight, few, groups, ends, affine), noise) == 0) continue;
      const size_t levels = levels_of(in_groups(weight, rows, groups, ends, affine), noise);
      if (levels > 2)
        return FewLevels{levels, fmt::format("{} values in groups of {}{}{}", levels, groups.size,
                                             groups.through_rows ? " counted through all rows" : "",
                                             affine ? " with zero points" : "")};
    }
  return std::nullopt;
}

}  // namespace lockstep
