// Rows that begin elsewhere than the reader thinks: memory with a pitch (rows padded to a multiple of 32, of 256 bytes,
// of a tile) read as if rows followed each other, or the reverse.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/layout/layouts.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr int64_t kFewestKnown = 64, kNowhere = -1;

// `units` of the tensor have memory of their own each, in which rows of `row` elements begin every `pitch`.
struct Pitch {
  int64_t unit = 0, row = 0, pitch = 0;
  bool padded = true;  // the memory is padded and read as if it were not; else the reverse

  // Where the candidate's element comes from, kNowhere for padding and beyond the end.
  int64_t source(int64_t i) const {
    const int64_t base = i / unit * unit, at = i - base;
    const int64_t from =
        padded ? (at % pitch < row ? at / pitch * row + at % pitch : kNowhere) : at / row * pitch + at % row;
    return from < 0 || from >= unit ? kNowhere : base + from;
  }
  std::string words() const {
    return padded ? fmt::format(
                        "in memory where a row of {} begins every {} elements, read as if rows followed each "
                        "other",
                        row, pitch)
                  : fmt::format("in memory where rows of {} follow each other, read as if one began every {} elements",
                                row, pitch);
  }
};

// Elements that are not near zero and not in a first row, which no pitch moves: zeros agree with everything.
std::vector<int64_t> telling_elements(const Values& candidate, const Values& reference, int64_t unit, int64_t row) {
  std::vector<int64_t> out;
  const double scale = 0.2 * rms(reference.v);
  uint64_t state = 4321;
  for (int tries = 0; tries < 8192 && out.size() < 96; ++tries) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const int64_t i = static_cast<int64_t>((state >> 24) % static_cast<uint64_t>(candidate.size()));
    if (std::fabs(candidate.v[static_cast<size_t>(i)]) > scale && i % unit >= row) out.push_back(i);
  }
  return out;
}

bool sample_has_pitch(const Pitch& pitch, const Values& candidate, const Values& reference,
                      const std::vector<int64_t>& sample, double limit) {
  size_t known = 0, wrong = 0;
  for (const int64_t i : sample) {
    const int64_t from = pitch.source(i);
    if (from == kNowhere) continue;
    ++known;
    const double d = std::fabs(candidate.v[static_cast<size_t>(i)] - reference.v[static_cast<size_t>(from)]);
    if (!(d <= limit) && ++wrong > 2) return false;
  }
  return known >= 16;
}

// All elements: what is known of them must agree, and be enough of them, or the others be nothing but padding.
std::optional<Rearrangement> measured(const Pitch& pitch, const Values& candidate, const Values& reference) {
  Rearrangement out{"layout.strided", pitch.words(), 0, 2, candidate};
  int64_t known = 0, moved = 0;
  Residual unexplained;
  bool blank = true;
  for (int64_t i = 0; i < candidate.size(); ++i) {
    const size_t at = static_cast<size_t>(i);
    const int64_t from = pitch.source(i);
    if (from == kNowhere) {
      blank = blank && candidate.v[at] == 0;
      continue;
    }
    const double r = reference.v[static_cast<size_t>(from)], d = candidate.v[at] - r;
    unexplained.add_squares(d * d, r * r), ++known, moved += from != i;
    out.restored.v[at] = static_cast<float>(r);
  }
  if (moved < kFewestKnown || (3 * known < candidate.size() && !blank)) return std::nullopt;
  out.residual = unexplained.relative();
  return out;
}

}  // namespace

std::optional<Rearrangement> find_padded_rows(const Values& candidate_in, const Values& reference_in,
                                              double tolerance) {
  if (!same_size_shape(candidate_in.shape, reference_in.shape)) return std::nullopt;
  const Values candidate = without_unit_axes(candidate_in), reference = without_unit_axes(reference_in);
  const size_t rank = reference.rank();
  if (rank < 2 || reference.size() < 2 * kFewestKnown) return std::nullopt;
  const double limit = std::max(8 * tolerance, 1e-6) * rms(reference.v);
  constexpr int64_t kLeastReach = 1024, kMostReach = 65536;  // elements of padding that are tried
  int64_t unit = reference.size();
  for (size_t outer = 0; outer + 1 < rank; unit /= reference.shape[outer++]) {
    int64_t row = 1;
    for (size_t inner = rank; inner-- > outer + 1;) {
      row *= reference.shape[inner];
      if (unit / row < 3) break;
      const std::vector<int64_t> sample = telling_elements(candidate, reference, unit, row);
      const int64_t last = row + std::clamp(3 * row, kLeastReach, kMostReach);
      for (const bool padded : {true, false})
        for (int64_t pitch = padded ? row + 1 : row / 2 + 1; pitch <= last && pitch + row < unit; ++pitch) {
          const Pitch next{unit, row, pitch, padded};
          if (pitch == row || !sample_has_pitch(next, candidate, reference, sample, limit)) continue;
          auto found = measured(next, candidate, reference);
          if (!found || !(found->residual <= tolerance)) continue;
          found->restored.shape = candidate_in.shape;
          return found;
        }
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
