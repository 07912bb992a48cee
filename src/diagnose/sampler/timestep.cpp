// The features of a timestep: [cos | sin] of t * factor * theta^(-i/half).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/sampler/timestep_value.h"
#include "diagnose/search/edits.h"
#include "diagnose/search/fit.h"
#include "diagnose/search/number_formats.h"

namespace lockstep {
namespace {

constexpr int64_t kMostFeatureForms = 4096;  // forms

struct Features {
  bool cos_first = true;
  double factor = 1000, theta = 1e4;
  double shift = 0;                                             // the exponent divides by half - shift
  int sine = 1;                                                 // its sign
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

constexpr double kFactors[] = {1000.0, 1.0, 0.001, 1e6}, kThetas[] = {1e4, 1e3, 1e5, 1e6, 100.0, 256.0, 2e4, 5e3};

std::vector<Features> feature_forms() {
  std::vector<Features> out;
  for (const bool cos_first : {true, false})
    for (const double factor : kFactors)
      for (const double theta : kThetas)
        for (const double shift : {0.0, 1.0}) out.push_back({cos_first, factor, theta, shift});
  return out;
}

EditedForm<Features> fit_reference_form(const Values& t, const Values& y) {
  return fit_reference(
      feature_forms(), [&](const Features& f) { return residual_of(f, t, y); }, 0);
}

// What yours computes is shown in full; the fix is the reference's formula.
EditName other_features(Cause cause, const Features& r) {
  return {cause, "compute " + formula(r)};
}

std::vector<Edit<Features>> feature_edits(const Features& r) {
  enum Kind { kFactor = 1, kTheta };
  std::vector<Edit<Features>> out{
      {other_features("timestep.cos_sin_order", r), [](Features& f) { f.cos_first = !f.cos_first; }},
      {other_features("timestep.sign", r), [](Features& f) { f.sine = -f.sine; }},
      {other_features("timestep.theta", r), [](Features& f) { f.shift = 1 - f.shift; }},
  };
  for (const double factor : {1000.0, 1.0, 0.001, 1e6, 2000.0, 500.0, 100.0, 10.0, 999.0, 1024.0, 2 * M_PI})
    if (factor != r.factor)
      out.push_back({other_features("timestep.factor", r), [=](Features& f) { f.factor = factor; }, kFactor});
  for (const double theta : kThetas)
    if (theta != r.theta)
      out.push_back({other_features("timestep.theta", r), [=](Features& f) { f.theta = theta; }, kTheta});
  for (const NumberFormat& format : half_formats())
    for (int held = 1; held < 8; ++held)
      out.push_back({other_features(format.cause, r),
                     [held, &format](Features& f) {
                       if (held & 1) f.angle = &format;
                       if (held & 2) f.frequency = &format;
                       if (held & 4) f.time = &format;
                     },
                     0, false});
  return out;
}

// Angles of a thousand: a theta that is off by a hundredth is off by whole turns. All else as the reference has it.
EditedForm<Features> with_any_theta(const Features& r, const Values& t, const Values& y) {
  EditedForm<Features> best{r, INFINITY, {other_features("timestep.theta", r)}};
  const auto consider = [&](double theta) {
    Features f = r;
    f.theta = theta;
    if (const double left = residual_of(f, t, y); left < best.residual) best.form = f, best.residual = left;
  };
  for (double theta = 1.5; theta < 3e6; theta *= 1.002) consider(theta);
  for (double step = 1.03; step > 1.000002; step = std::sqrt(step)) {
    const double middle = best.form.theta;
    consider(middle * step), consider(middle / step);
  }
  return best;
}

// Any geometric law: the angles are read off, slow ones first, and each faster one is unwrapped by what the slower ones
// predict of it.
EditedForm<Features> by_angles(const Features& r, const Values& t, const Values& y) {
  constexpr int64_t kFirst = 6;
  const size_t half = static_cast<size_t>(y.last() / 2);
  EditedForm<Features> none{r};
  if (y.last() / 2 < 2 * kFirst || !(std::fabs(t.v[0]) > 0)) return none;
  const std::span<const float> row = y.row(0);
  double n = 0, si = 0, sl = 0, sii = 0, sil = 0, intercept = 0, slope = 0;
  for (size_t i = half; i-- > 0;) {
    const double sine = r.sine * row[r.cos_first ? i + half : i], cosine = row[r.cos_first ? i : i + half];
    if (std::fabs(sine * sine + cosine * cosine - 1) > 0.02) return none;
    double angle = std::atan2(sine, cosine);
    const double at = static_cast<double>(i);
    if (n >= kFirst) {
      const double expected = std::exp(intercept + slope * at);
      angle += 2 * M_PI * std::nearbyint((expected - angle) / (2 * M_PI));
    }
    if (!(angle > 0)) return none;
    ++n, si += at, sl += std::log(angle), sii += at * at, sil += at * std::log(angle);
    if (n < 2) continue;
    slope = (sil - si * sl / n) / (sii - si * si / n), intercept = (sl - slope * si) / n;
  }
  Features out = r;
  out.factor = std::exp(intercept) / t.v[0], out.shift = 0, out.theta = std::exp(-slope * static_cast<double>(half));
  // The reference's theta with another divisor of the exponent, or its factor: round numbers are taken for what they
  // are.
  const double divided = std::exp(-slope * (static_cast<double>(half) - 1));
  if (std::fabs(divided / r.theta - 1) < 1e-3) out.shift = 1, out.theta = r.theta;
  if (std::fabs(out.factor / r.factor - 1) < 1e-4) out.factor = r.factor;
  if (std::fabs(out.theta / r.theta - 1) < 1e-3) out.theta = r.theta;
  const Cause cause = out.factor != r.factor ? Cause("timestep.factor") : Cause("timestep.theta");
  return {out, residual_of(out, t, y), {other_features(cause, r)}};
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
bool search_fewer_features(Case& failing, const Item& item, const Report& report, double limit) {
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
  const EditedForm<Features> c = fit_reference_form(failing.candidate_of(item), head);
  return c.residual <= limit &&
         report.add({"timestep.theta", "make it as wide as the reference: compute " + report.formula()},
                    fmt::format("the same of {} numbers where it has {}, and zeros", width, y.last()),
                    std::min(c.residual, failing.tolerance), 0.9);
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
    const EditedForm<Features> r = fit_reference_form(failing.reference_of(item), failing.r);
    const double limit = std::max(2e-3, failing.tolerance);  // sines of large arguments in f32
    if (r.residual > limit) continue;
    const Values &t = failing.candidate_of(item), &y = failing.c;
    const double with_reference = residual_of(r.form, t, y);
    if (failing.note_local(with_reference)) return;
    const Report report(formula(r.form), r.residual, out);
    const auto is_enough = [&](double residual) { return residual <= limit; };
    Budget budget(kMostFeatureForms);
    EditSearch<Features> search(
        r.form, [&](const Features& f) { return residual_of(f, t, y); }, 1, budget);
    const std::vector<Edit<Features>> edits = feature_edits(r.form);
    search.try_each(edits);
    search.try_all_pairs(edits, is_enough);
    if (!is_enough(search.best().residual))
      search.solve([&](const Features& f, Budget&) { return by_angles(f, t, y); });
    if (!is_enough(search.best().residual))
      search.solve([&](const Features& f, Budget&) { return with_any_theta(f, t, y); });
    const EditedForm<Features>& c = search.best();
    if (is_enough(c.residual)) {
      const bool of_another_step = c.form.factor != r.form.factor && is_of_another_step(failing);
      if (failing.is_better(c.residual, with_reference))
        report.add(c.name(), formula(c.form), std::min(c.residual, failing.tolerance), of_another_step ? 1.6 : 0.7);
    } else if (!search_fewer_features(failing, item, report, limit) && are_of_angles(y)) {
      report.add(other_features("timestep.theta", r.form), "cosines and sines too, of angles by another law",
                 failing.tolerance, 3);
    }
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
    const EditedForm<Features> r = fit_reference_form(failing.reference_of(item), failing.r);
    if (r.residual <= limit) return residual_of(r.form, failing.candidate_of(item), failing.c) <= limit;
  }
  return false;
}

}  // namespace lockstep
