// The features of a timestep: [cos | sin] of t * factor * theta^(-i/half).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/sampler/timestep_value.h"
#include "diagnose/search/fit.h"
#include "diagnose/search/number_formats.h"

namespace lockstep {
namespace {

struct Features {
  bool cos_first = true;
  double factor = 1000, theta = 1e4;
  double shift = 0;  // the exponent divides by half - shift
  int sine = 1;      // its sign
  double residual = INFINITY;
  Format time = nullptr, frequency = nullptr, angle = nullptr;  // held in a poorer format
};

std::string formula(const Features& f) {
  std::string held;
  for (const auto& [format, what] : {std::pair{f.time, "t"}, {f.frequency, "frequencies"}, {f.angle, "angles"}})
    if (format) held += fmt::format(", {} in {}", what, format->name);
  return fmt::format("[{}](t * {:.5g} * {:.5g}^(-i/{})){}{}", f.cos_first ? "cos, sin" : "sin, cos", f.factor, f.theta,
                     f.shift == 0 ? "half" : "(half - 1)", f.sine < 0 ? ", sines negated" : "", held);
}

double residual_of(const Features& f, const Values& t, const Values& y) {
  const int64_t half = y.last() / 2;
  double dd = 0, yy = 0;
  for (int64_t row = 0; row < y.rows(); ++row)
    for (int64_t i = 0; i < half; ++i) {
      const double time = in_format(f.factor * in_format(t.v[static_cast<size_t>(row)], f.time), f.time);
      const double slower =
          std::exp(-std::log(f.theta) * static_cast<double>(i) / (static_cast<double>(half) - f.shift));
      const double a = in_format(time * in_format(slower, f.frequency), f.angle);
      const double sine = f.sine * std::sin(a);
      const double first = f.cos_first ? std::cos(a) : sine, second = f.cos_first ? sine : std::cos(a);
      const double d0 = first - y.row(row)[static_cast<size_t>(i)],
                   d1 = second - y.row(row)[static_cast<size_t>(i + half)];
      dd += d0 * d0 + d1 * d1;
      yy += 1;
    }
  return std::sqrt(dd / yy);
}

// Any theta and the factors between the usual ones.
Features fit_unusual(const Values& t, const Values& y, const Features& usual, const Features& r) {
  Features best = usual;
  const auto consider = [&](Features f) {
    f.residual = residual_of(f, t, y);
    if (f.residual < best.residual) best = f;
  };
  // Angles of a thousand: a theta that is off by a hundredth is off by whole turns. All else as the reference has it.
  for (double theta = 1.5; theta < 3e6; theta *= 1.002) consider({r.cos_first, r.factor, theta, r.shift, r.sine, 0});
  for (const bool cos_first : {true, false})
    for (const int sine : {1, -1})
      for (const double shift : {0.0, 1.0})
        for (const double factor : {1000.0, 1.0, 0.001, 2000.0, 500.0, 100.0, 10.0, 999.0, 1024.0, 2 * M_PI, 1e6}) {
          consider({cos_first, factor, 1e4, shift, sine, 0});
          for (double theta = 2; theta < 3e6; theta *= 1.05) consider({cos_first, factor, theta, shift, sine, 0});
        }
  for (double step = 1.03; step > 1.000002; step = std::sqrt(step))
    for (const double theta : {best.theta * step, best.theta / step}) {
      Features f = best;
      f.theta = theta;
      consider(f);
    }
  return best;
}

Features fit(const Values& t, const Values& y) {
  Features best;
  for (const bool cos_first : {true, false})
    for (const double factor : {1000.0, 1.0, 0.001, 1e6})
      for (const double theta : {1e4, 1e3, 1e5, 1e6, 100.0, 256.0, 2e4, 5e3})
        for (const double shift : {0.0, 1.0}) {
          Features f{cos_first, factor, theta, shift, 1, 0};
          f.residual = residual_of(f, t, y);
          if (f.residual < best.residual) best = f;
        }
  return best;
}

// Any geometric law: the angles are read off, slow ones first, and each faster one is unwrapped by what the slower ones
// predict of it.
Features by_angles(const Values& t, const Values& y, const Features& r) {
  constexpr int64_t kFirst = 6;
  const size_t half = static_cast<size_t>(y.last() / 2);
  Features out;
  if (y.last() / 2 < 2 * kFirst || !(std::fabs(t.v[0]) > 0)) return out;
  const std::span<const float> row = y.row(0);
  double n = 0, si = 0, sl = 0, sii = 0, sil = 0, intercept = 0, slope = 0;
  for (size_t i = half; i-- > 0;) {
    const double sine = r.sine * row[r.cos_first ? i + half : i], cosine = row[r.cos_first ? i : i + half];
    if (std::fabs(sine * sine + cosine * cosine - 1) > 0.02) return out;
    double angle = std::atan2(sine, cosine);
    const double at = static_cast<double>(i);
    if (n >= kFirst) {
      const double expected = std::exp(intercept + slope * at);
      angle += 2 * M_PI * std::nearbyint((expected - angle) / (2 * M_PI));
    }
    if (!(angle > 0)) return out;
    ++n, si += at, sl += std::log(angle), sii += at * at, sil += at * std::log(angle);
    if (n < 2) continue;
    slope = (sil - si * sl / n) / (sii - si * si / n), intercept = (sl - slope * si) / n;
  }
  out = r;
  out.factor = std::exp(intercept) / t.v[0], out.shift = 0, out.theta = std::exp(-slope * static_cast<double>(half));
  // The reference's theta with another divisor of the exponent, or its factor: round numbers are taken for what they
  // are.
  const double divided = std::exp(-slope * (static_cast<double>(half) - 1));
  if (std::fabs(divided / r.theta - 1) < 1e-3) out.shift = 1, out.theta = r.theta;
  if (std::fabs(out.factor / r.factor - 1) < 1e-4) out.factor = r.factor;
  if (std::fabs(out.theta / r.theta - 1) < 1e-3) out.theta = r.theta;
  out.residual = residual_of(out, t, y);
  return out;
}

// The reference's own features with time, frequencies or angles in a poorer format; `best` when none is better.
Features in_poorer_format(const Values& t, const Values& y, const Features& r, Features best) {
  for (const NumberFormat& format : half_formats())
    for (int held = 1; held < 8; ++held) {
      Features f = r;
      if (held & 1) f.angle = &format;
      if (held & 2) f.frequency = &format;
      if (held & 4) f.time = &format;
      f.residual = residual_of(f, t, y);
      if (f.residual < 0.5 * best.residual) best = f;
    }
  return best;
}

// Each number of the first half and its partner in the second are a cosine and a sine of one angle, and they vary.
bool are_of_angles(const Values& y) {
  const size_t half = static_cast<size_t>(y.last() / 2);
  double sum = 0, squares = 0;
  for (int64_t row = 0; row < y.rows(); ++row)
    for (size_t i = 0; i < half; ++i) {
      const double a = y.row(row)[i], b = y.row(row)[i + half];
      if (std::fabs(a * a + b * b - 1) > 1e-3) return false;
      sum += a, squares += a * a;
    }
  const double n = static_cast<double>(y.rows()) * static_cast<double>(half);
  return half >= 16 && squares / n - sum / n * (sum / n) > 0.01;
}

// Features of a smaller width, and zeros after them.
bool search_fewer_features(Case& failing, const Item& item, const Features& r, double limit, Findings& out) {
  const Values& y = failing.c;
  const auto is_zero = [&](int64_t j) {
    for (int64_t row = 0; row < y.rows(); ++row)
      if (y.row(row)[static_cast<size_t>(j)] != 0) return false;
    return true;
  };
  int64_t width = y.last();
  while (width > 0 && is_zero(width - 1)) --width;
  width += width % 2;  // a sine of nothing at the end
  if (width < 16 || width == y.last()) return false;
  Values head = make_values({y.rows(), width});
  for (int64_t row = 0; row < y.rows(); ++row) std::copy_n(y.row(row).begin(), width, head.row(row).begin());
  const Features c = fit(failing.candidate_of(item), head);
  if (c.residual > limit) return false;
  out.push_back({.cause = "timestep.theta",
                 .explanation = fmt::format("reference: {}; yours: the same of {} numbers where it has {}, and zeros",
                                            formula(r), width, y.last()),
                 .fix = "make it as wide as the reference: compute " + formula(r),
                 .residual_reference = r.residual,
                 .residual = std::min(c.residual, failing.tolerance),
                 .complexity = 0.9});
  return true;
}

// Of the same stage at another step or in another pass, number for number: a factor of the time says the same, and
// less of what happened.
bool is_of_another_step(Case& failing) {
  const RunView& run = failing.reference_run();
  for (size_t i = 0; i < run.records.size(); ++i) {
    const RecordedTensor& record = run.records[i];
    if (i == failing.reference_record() || record.key.name != failing.name || record.role != failing.role ||
        !record.load || record.shape != failing.r.shape)
      continue;
    const Values& other = failing.load_reference(i);
    if (other.size() == failing.c.size() && failing.explains(relative_error(failing.c.v, other.v)) &&
        !failing.explains(relative_error(failing.r.v, other.v)))
      return true;
  }
  return false;
}

void search_features(Case& failing, Findings& out) {
  if (failing.r.last() < 8 || failing.r.last() % 2) return;
  for (const Item& item : failing.items) {
    if (checked_numel(item.shape) != failing.r.rows() || item.relation == Relation::kEarlier) continue;
    const Features r = fit(failing.reference_of(item), failing.r);
    const double limit = std::max(2e-3, failing.tolerance);  // sines of large arguments in f32
    if (r.residual > limit) continue;
    if (failing.note_local(residual_of(r, failing.candidate_of(item), failing.c))) return;
    Features c = fit(failing.candidate_of(item), failing.c);
    if (c.residual > limit) c = in_poorer_format(failing.candidate_of(item), failing.c, r, c);
    if (c.residual > limit) {
      const Features read = by_angles(failing.candidate_of(item), failing.c, r);
      if (read.residual < c.residual) c = read;
    }
    if (c.residual > limit) c = fit_unusual(failing.candidate_of(item), failing.c, c, r);
    if (c.residual > limit && search_fewer_features(failing, item, r, limit, out)) return;
    if (c.residual > limit && are_of_angles(failing.c)) {
      out.push_back({.cause = "timestep.theta",
                     .explanation = fmt::format("reference: {}; yours: cosines and sines too, of angles by another law",
                                                formula(r)),
                     .fix = "compute " + formula(r),
                     .residual_reference = r.residual,
                     .residual = failing.tolerance,
                     .complexity = 2});
      return;
    }
    if (c.residual > limit || c.residual > 0.3 * residual_of(r, failing.candidate_of(item), failing.c)) return;
    const Format held = c.time ? c.time : c.frequency ? c.frequency : c.angle;
    Cause cause = held                         ? held->cause
                  : c.cos_first != r.cos_first ? Cause("timestep.cos_sin_order")
                  : c.sine != r.sine           ? Cause("timestep.sign")
                  : c.factor != r.factor       ? Cause("timestep.factor")
                                               : Cause("timestep.theta");  // or what its exponent is divided by
    const double complexity = c.factor != r.factor && is_of_another_step(failing) ? 1.6 : 0.7;
    out.push_back({.cause = cause,
                   .explanation = fmt::format("reference: {}; yours: {}", formula(r), formula(c)),
                   .fix = "compute " + formula(r),
                   .residual_reference = r.residual,
                   .residual = std::min(c.residual, failing.tolerance),
                   .complexity = complexity});
    return;
  }
}

}  // namespace

void search_timestep(Case& failing, Findings& out) {
  if (!std::isfinite(failing.error)) return;
  search_timestep_value(failing, out);
  search_features(failing, out);
}

bool confirm_timestep(Case& failing) {
  if (failing.r.last() < 8 || failing.r.last() % 2) return false;
  const double limit = std::max(2e-3, failing.tolerance);
  for (const Item& item : failing.items) {
    if (checked_numel(item.shape) != failing.r.rows() || item.relation != Relation::kOwnInput) continue;
    const Features r = fit(failing.reference_of(item), failing.r);
    if (r.residual <= limit) return residual_of(r, failing.candidate_of(item), failing.c) <= limit;
  }
  return false;
}

}  // namespace lockstep
