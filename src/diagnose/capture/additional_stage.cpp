// A stage that ran in yours alone, and whose result, or a part of it, stands where the reference has what went into it.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "diagnose/case/family.h"
#include "diagnose/layout/layouts.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr size_t kMostBefore = 64;  // records of yours
constexpr int64_t kMostParts = 8;

// Is `x` the tensor `whole`, or one of several equal parts along one of its axes? Which, in words.
std::optional<std::string> part_of(const Values& whole, const Values& x, double tolerance) {
  const int64_t parts = x.size() > 0 && whole.size() % x.size() == 0 ? whole.size() / x.size() : 0;
  if (parts < 1 || parts > kMostParts) return std::nullopt;
  if (parts == 1) {
    if (relative_error(x.v, whole.v) <= tolerance) return "";
    if (const auto order = find_axis_order(x, whole, tolerance)) return ", " + order->words;
    return std::nullopt;
  }
  for (size_t axis = 0; axis < whole.shape.size(); ++axis) {
    if (whole.shape[axis] % parts) continue;
    size_t inner = static_cast<size_t>(whole.shape[axis] / parts);  // elements of a part that lie together
    for (size_t i = axis + 1; i < whole.shape.size(); ++i) inner *= static_cast<size_t>(whole.shape[i]);
    for (size_t part = 0; part < static_cast<size_t>(parts); ++part) {
      Residual apart;
      for (size_t i = 0; i < x.v.size(); ++i) {
        apart.add(whole.v[(i / inner * static_cast<size_t>(parts) + part) * inner + i % inner], x.v[i]);
        if (i == 63 && apart.is_beyond(0.5)) break;
      }
      if (apart.relative() <= tolerance) return fmt::format(", part {} of {} along axis {}", part + 1, parts, axis);
    }
  }
  return std::nullopt;
}

}  // namespace

void search_additional_stage(Case& failing, Findings& out) {
  if (!failing.partner || failing.r.size() < 16 || !std::isfinite(failing.error)) return;
  const RunView &reference = failing.reference_run(), &candidate = failing.candidate_run();
  const size_t own = failing.candidate_record(), first = own > kMostBefore ? own - kMostBefore : 0;
  std::vector<bool> paired(own - first);
  for (size_t i = 0; i < reference.records.size(); ++i)
    if (const size_t at = failing.partner(i); at >= first && at < own) paired[at - first] = true;
  const auto is_alone = [&](size_t i, Role role) {
    const RecordedTensor& record = candidate.records[i];
    return !paired[i - first] && record.role == role && record.load && is_floating(record.dtype);
  };
  const double near = std::max(failing.tolerance, failing.floor);
  for (size_t i = own; i-- > first;) {
    if (!is_alone(i, Role::kOutput) || checked_numel(candidate.records[i].shape) % failing.c.size()) continue;
    const auto given = part_of(failing.load_candidate(i), failing.c, failing.tolerance);
    if (!given) continue;
    // What went into it, or into a stage before it that yours alone has, is what the reference has here. A stage under
    // another name would be the reference's own, and its input is not.
    for (size_t k = i; k-- > first && !paired[k - first];) {
      if (!is_alone(k, Role::kInput) || checked_numel(candidate.records[k].shape) != failing.r.size()) continue;
      const auto taken = part_of(failing.load_candidate(k), failing.r, near);
      if (!taken) continue;
      const std::string stage = candidate.records[i].key.name;
      out.push_back({.cause = "stage.replaced",
                     .explanation = fmt::format(
                         "reference: what goes into {0}{1}; yours: what {0} gives{2}: it runs in yours alone", stage,
                         *taken, *given),
                     .fix = fmt::format("do not run {} here", stage),
                     .residual = failing.tolerance,
                     .complexity = 0.8});
      return;
    }
  }
}

}  // namespace lockstep
