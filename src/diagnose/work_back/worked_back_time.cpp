#include "diagnose/work_back/worked_back_time.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

// One row of an embedding: cos(t f) in one half, sin(t f) in the other.
struct Angles {
  std::span<const float> row;
  bool sines_first = false;
  size_t pairs() const { return row.size() / 2; }
  double angle(size_t i) const {
    const double a = row[i], b = row[i + pairs()];
    return sines_first ? std::atan2(a, b) : std::atan2(b, a);
  }
};

// Each frequency, from the slowest to the fastest, makes the number more precise.
double refined(double t, const Angles& angles, const std::vector<double>& frequencies) {
  for (size_t i = angles.pairs(); i-- > 0;) {
    const double predicted = t * frequencies[i];
    t += std::remainder(angles.angle(i) - predicted, 2 * M_PI) / frequencies[i];
  }
  return t;
}

// The frequencies fall from pair to pair; the last turns least, and is taken not to have turned once round.
double time_of(const Angles& angles, const std::vector<double>& frequencies) {
  return refined(angles.angle(angles.pairs() - 1) / frequencies.back(), angles, frequencies);
}

double misfit(const Angles& angles, double t, const std::vector<double>& frequencies, double rounding = 0) {
  double dd = 0;
  for (size_t i = 0; i < angles.pairs(); ++i) {
    double d = std::fabs(std::remainder(angles.angle(i) - t * frequencies[i], 2 * M_PI));
    d = std::max(0.0, d - rounding * std::fabs(t * frequencies[i]));
    dd += d * d;
  }
  return std::sqrt(dd / static_cast<double>(angles.pairs()));
}

}  // namespace

std::optional<WorkedBack> work_back_time(Case& failing) {
  constexpr double kFits = 2e-3;
  constexpr double kRounding = 2.4e-7;  // of an angle in f32, which is made by two products
  const auto inputs = failing.structure().records_of(failing.module, Role::kInput, failing.reference_record());
  if (inputs.size() != 1 || failing.partner(inputs[0]) != SIZE_MAX || failing.r.last() < 8 || failing.r.last() % 2)
    return std::nullopt;
  WorkedBack out;
  out.record = inputs[0];
  out.reference = failing.load_reference(out.record);
  if (out.reference.size() != failing.r.rows() || !(std::fabs(out.reference.v[0]) > 0)) return std::nullopt;
  for (const bool sines_first : {false, true}) {
    const double t = out.reference.v[0];
    const Angles first{failing.r.row(0), sines_first};
    // The frequencies from the reference: geometric, so that the last one tells whether nothing has turned once round.
    std::vector<double> frequencies(first.pairs());
    const size_t last = first.pairs() - 1;
    frequencies[last] = first.angle(last) / t;
    if (!(frequencies[last] > 0)) continue;
    for (size_t i = last; i-- > 0;) {
      const double ratio = i + 2 <= last ? frequencies[i + 1] / frequencies[i + 2] : 1.0;
      const double guess = t * frequencies[i + 1] * ratio;
      frequencies[i] = (guess + std::remainder(first.angle(i) - guess, 2 * M_PI)) / t;
    }
    if (!(misfit(first, time_of(first, frequencies), frequencies) < 1e-4) ||
        std::fabs(time_of(first, frequencies) / t - 1) > 1e-3)
      continue;
    out.candidate = out.reference;
    bool fits = true;
    for (int64_t row = 0; row < failing.r.rows(); ++row) {
      const Angles mine{failing.c.row(row), sines_first};
      double own = time_of(mine, frequencies);
      // A time in thousandths, or in thousands, turns them all: then its size must be guessed.
      bool is_time = misfit(mine, own, frequencies) < kFits;
      for (const double factor : {1000.0, 0.001}) {
        if (is_time) break;
        own = refined(factor * out.reference.v[static_cast<size_t>(row)], mine, frequencies);
        is_time = misfit(mine, own, frequencies, kRounding) < kFits;
      }
      fits = fits && is_time;
      out.candidate.v[static_cast<size_t>(row)] = static_cast<float>(own);
    }
    if (!fits) return std::nullopt;  // the embedding itself is another
    out.tolerance = std::max(failing.tolerance, 1e-4);
    if (relative_error(out.candidate.v, out.reference.v) <= out.tolerance) return std::nullopt;
    out.from = {failing.module};
    return out;
  }
  return std::nullopt;
}

}  // namespace lockstep
