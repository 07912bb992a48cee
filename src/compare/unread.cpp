#include "compare/unread.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/noise_floor.h"
#include "compare/structure.h"

namespace lockstep {
namespace {

bool differs(const RecordedTensor& r, const RecordedTensor& c, double* distance) {
  if (!r.stats || !c.stats || r.shape != c.shape) return false;
  const double unit = std::max(unit_roundoff(r.dtype), unit_roundoff(c.dtype));
  const int64_t length = r.shape.empty() ? 1 : *std::max_element(r.shape.begin(), r.shape.end());
  *distance = statistics_distance(*c.stats, *r.stats);
  return *distance > kFloorFactor * rounding_floor(unit, 4 * length);
}

}  // namespace

double statistics_distance(const Statistics& candidate, const Statistics& reference) {
  if (candidate.nan != reference.nan || candidate.inf != reference.inf) return INFINITY;
  if (reference.finite() == 0) return 0;
  const double scale = std::max(reference.rms, 1e-30);
  return std::max({std::fabs(candidate.mean - reference.mean), std::fabs(candidate.rms - reference.rms),
                   std::fabs(candidate.std - reference.std)}) /
         scale;
}

std::string unread_note(const RunView& reference, const RunView& candidate, const std::vector<PairResult>& results) {
  size_t unread = 0;
  const RecordedTensor *first = nullptr, *suspect = nullptr, *its_partner = nullptr;
  double distance = 0;
  for (const PairResult& result : results) {
    if (result.state != PairState::kUnread) continue;
    const RecordedTensor& r = reference.records[result.pair.reference];
    const RecordedTensor& c = candidate.records[result.pair.candidate];
    if (unread++ == 0) first = &r;
    if (!suspect && differs(r, c, &distance)) suspect = &r, its_partner = &c;
  }
  if (unread == 0) return "";
  const std::string& name = (suspect ? suspect : first)->key.name;
  const std::string around = parent_of(name);
  // What stands beside the suspect is what it was made from.
  const std::string command =
      fmt::format("lockstep record --full '{}'", around.empty() ? name : fmt::format("{}*", around));
  if (!suspect)
    return fmt::format("{} pairs have no values on one side; their statistics agree; record them in full: {}", unread,
                       command);
  return fmt::format(
      "{} pairs have no values on one side; by their statistics {} is the first to differ (rms {:.4g} against {:.4g}, "
      "mean {:.4g} against {:.4g}); record it and its neighbours in full, on both sides: {}",
      unread, to_string(suspect->key), its_partner->stats->rms, suspect->stats->rms, its_partner->stats->mean,
      suspect->stats->mean, command);
}

}  // namespace lockstep
