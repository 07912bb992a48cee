#include "compare/region.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/axis_words.h"

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
  if (count == 1) {
    region.words = fmt::format("one element, index {}", std::find(bad.begin(), bad.end(), true) - bad.begin());
    return region;
  }
  const std::vector<std::string> words = axis_words(name, reference.shape);
  int borders = 0, picture_axes = 0;
  for (size_t axis = 0; axis < reference.shape.size(); ++axis) {
    if (reference.shape[axis] < 2) continue;
    const std::vector<double> shares = bad_shares(bad, reference.shape, axis);
    const double most = *std::max_element(shares.begin(), shares.end());
    std::vector<bool> marked(shares.size());
    for (size_t i = 0; i < shares.size(); ++i) marked[i] = shares[i] > 0.3 * most;
    const bool picture = words[axis] == "row" || words[axis] == "column";
    picture_axes += picture;
    if (picture && shares.size() > 2 && marked.front() && marked.back() &&
        std::count(marked.begin(), marked.end(), true) == 2)
      ++borders;
    const std::string set = index_set_words(words[axis], marked);
    if (!set.empty()) region.words += (region.words.empty() ? "" : "; ") + set;
  }
  region.border_only = picture_axes == 2 && borders == 2;
  if (region.border_only) region.words = "only the border rows and columns";
  if (region.words.empty())
    region.words = region.bad_fraction > 0.5
                       ? "everywhere"
                       : fmt::format("scattered, {:.2g} % of the elements", 100 * region.bad_fraction);
  return region;
}

}  // namespace lockstep
