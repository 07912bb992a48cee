// A table of angles whose angles, frequencies or positions were held in a poorer format before cos and sin were taken.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "diagnose/rotary/rotary_precision.h"
#include "diagnose/search/number_formats.h"
#include "diagnose/search/report.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

struct Held {
  const char* words;
  bool position, frequency, angle;
};
constexpr Held kHeld[] = {{"the angles", false, false, true},
                          {"the frequencies", false, true, false},
                          {"the positions", true, false, false},
                          {"positions, frequencies and angles", true, true, true},
                          {"positions and frequencies", true, true, false}};

double angle_of(double position, double frequency, const Held& held, Format format) {
  const double p = in_format(position, held.position ? format : nullptr),
               f = in_format(frequency, held.frequency ? format : nullptr);
  return in_format(p * f, held.angle ? format : nullptr);
}

// residual(format, held): how far the candidate is from the table so made.
void consider(Case& failing, const std::function<double(Format, const Held&)>& residual, Findings& out) {
  const double unchanged = residual(nullptr, kHeld[0]);
  for (const NumberFormat& format : half_formats())
    for (const Held& held : kHeld) {
      const double left = residual(&format, held);
      if (!failing.explains_candidate(left) || !failing.is_better(left, unchanged)) continue;
      Report("cos and sin of position * frequency", 0, out)
          .add({format.cause, "compute the angles in f32, and round no sooner than after cos and sin"},
               fmt::format("the same with {} in {}", held.words, format.name), left, 0.9);
      return;
    }
}

}  // namespace

void search_coarse_angles(Case& failing, const Angles& c, const Angles& r, Findings& out) {
  std::vector<AxisPositions> axes;
  if (!read_positions(r, 1e-4, axes)) return;
  // Whole numbers by nature; what reading them back adds is no part of them.
  for (AxisPositions& axis : axes)
    for (double& position : axis.positions)
      if (std::fabs(position - std::round(position)) < 0.02) position = std::round(position);
  const auto residual = [&](Format format, const Held& held) {
    double dd = 0;
    for (const AxisPositions& axis : axes)
      for (size_t i = 0; i < axis.frequencies.size(); ++i)
        for (int64_t t = 0; t < c.tokens; ++t) {
          const double off = c.at(t, axis.first + static_cast<int64_t>(i)) -
                             angle_of(axis.positions[static_cast<size_t>(t)], axis.frequencies[i], held, format);
          dd += std::pow(2 * std::sin(off / 2), 2);  // the distance of two points of the unit circle
        }
    return std::sqrt(dd / static_cast<double>(c.tokens * c.pairs));
  };
  if (failing.explains(residual(nullptr, kHeld[0])) || residual(nullptr, kHeld[0]) > 0.9) return;
  const std::function<double(Format, const Held&)> of_candidate = residual;
  consider(failing, of_candidate, out);
}

void search_coarse_table(Case& failing, Findings& out) {
  const Values &r = failing.r, &c = failing.c;
  const int64_t half = r.last() / 2, tokens = r.rank() >= 2 ? r.dim(-2) : 0;
  if (half < 3 || tokens < 3 || r.size() > 1 << 20) return;
  const auto value = [&](double angle, bool sine) { return sine ? std::sin(angle) : std::cos(angle); };
  const auto residual_of = [&](const Values& y, double theta, double start, bool sine, Format format,
                               const Held& held) {
    Residual unexplained;
    for (int64_t i = 0; i < half; ++i) {
      const double f = std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
      for (int64_t t = 0; t < tokens; ++t) {
        const double target = y.v[static_cast<size_t>(t * y.last() + i)];
        unexplained.add(value(angle_of(start + static_cast<double>(t), f, held, format), sine), target);
      }
    }
    return unexplained.relative();
  };
  for (const double theta : {1e6, 1e4, 5e5, 1e5, 2e4, 1e7, 256.0, 100.0})
    for (const double start : {0.0, 1.0})
      for (const bool sine : {false, true}) {
        if (!failing.explains(residual_of(r, theta, start, sine, nullptr, kHeld[0]))) continue;
        consider(
            failing, [&](Format format, const Held& held) { return residual_of(c, theta, start, sine, format, held); },
            out);
        return;
      }
}

}  // namespace lockstep
