#include "diagnose/work_back/worked_back_time.h"

#include <algorithm>
#include <cmath>
#include <map>

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

// How features are made of a time.
struct Law {
  bool sines_first = false;
  std::vector<double> frequencies;
};

// From the reference: geometric, so that the last one tells whether nothing has turned once round.
std::optional<Law> law_of(const Angles& angles, double t) {
  Law out{angles.sines_first, std::vector<double>(angles.pairs())};
  std::vector<double>& frequencies = out.frequencies;
  const size_t last = angles.pairs() - 1;
  frequencies[last] = angles.angle(last) / t;
  if (!(frequencies[last] > 0)) return std::nullopt;
  for (size_t i = last; i-- > 0;) {
    const double ratio = i + 2 <= last ? frequencies[i + 1] / frequencies[i + 2] : 1.0;
    const double guess = t * frequencies[i + 1] * ratio;
    frequencies[i] = (guess + std::remainder(angles.angle(i) - guess, 2 * M_PI)) / t;
  }
  const double again = time_of(angles, frequencies);
  if (!(misfit(angles, again, frequencies) < 1e-4) || std::fabs(again / t - 1) > 1e-3) return std::nullopt;
  return out;
}

// The times that such features were made of; nothing where the features are others.
std::optional<Values> times_behind(const Values& features, const Law& law, const Values& reference) {
  constexpr double kFits = 2e-3;
  constexpr double kRounding = 2.4e-7;  // of an angle in f32, which is made by two products
  Values out = reference;
  for (int64_t row = 0; row < features.rows(); ++row) {
    const Angles mine{features.row(row), law.sines_first};
    double own = time_of(mine, law.frequencies);
    // A time in thousandths, or in thousands, turns them all: then its size must be guessed.
    bool is_time = misfit(mine, own, law.frequencies) < kFits;
    for (const double factor : {1000.0, 0.001}) {
      if (is_time) break;
      own = refined(factor * reference.v[static_cast<size_t>(row)], mine, law.frequencies);
      is_time = misfit(mine, own, law.frequencies, kRounding) < kFits;
    }
    if (!is_time) return std::nullopt;
    out.v[static_cast<size_t>(row)] = static_cast<float>(own);
  }
  return out;
}

// The same number at other steps and in other passes: one alone may be many a rule's by chance.
std::map<size_t, Values> times_elsewhere(Case& failing, const Law& law) {
  constexpr size_t kMost = 64;
  const RunView& run = failing.reference_run();
  std::map<size_t, Values> out;
  for (size_t i = 0; i < run.records.size() && out.size() < kMost; ++i) {
    const RecordedTensor& record = run.records[i];
    if (i == failing.reference_record() || record.key.name != failing.name || record.role != failing.role) continue;
    const auto inputs = failing.structure().records_of(failing.module, Role::kInput, i);
    const size_t partner = failing.partner(i);
    if (partner == SIZE_MAX || inputs.size() != 1 || failing.partner(inputs[0]) != SIZE_MAX) continue;
    const Values &time = failing.load_reference(inputs[0]), &features = failing.load_candidate(partner);
    if (features.shape != failing.r.shape || time.size() != features.rows()) continue;
    if (auto own = times_behind(features, law, time)) out.emplace(inputs[0], std::move(*own));
  }
  return out;
}

}  // namespace

std::optional<WorkedBack> work_back_time(Case& failing) {
  const auto inputs = failing.structure().records_of(failing.module, Role::kInput, failing.reference_record());
  if (inputs.size() != 1 || failing.partner(inputs[0]) != SIZE_MAX || failing.r.last() < 8 || failing.r.last() % 2)
    return std::nullopt;
  WorkedBack out;
  out.record = inputs[0];
  out.reference = failing.load_reference(out.record);
  if (out.reference.size() != failing.r.rows() || !(std::fabs(out.reference.v[0]) > 0)) return std::nullopt;
  for (const bool sines_first : {false, true}) {
    const auto law = law_of({failing.r.row(0), sines_first}, out.reference.v[0]);
    if (!law) continue;
    auto own = times_behind(failing.c, *law, out.reference);
    if (!own) return std::nullopt;  // the embedding itself is another
    out.candidate = std::move(*own);
    out.tolerance = std::max(failing.tolerance, 1e-4);
    if (relative_error(out.candidate.v, out.reference.v) <= out.tolerance) return std::nullopt;
    out.from = {failing.module};
    out.elsewhere = times_elsewhere(failing, *law);
    return out;
  }
  return std::nullopt;
}

}  // namespace lockstep
