// The timestep itself (sigma, timestep or index?) and its features [cos | sin] of t * factor * theta^(-i/half).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "compare/families/fit.h"
#include "compare/families/number_formats.h"
#include "compare/families/schedule.h"

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
  out.push_back({"timestep.theta",
                 fmt::format("reference: {}; yours: the same of {} numbers where it has {}, and zeros", formula(r),
                             width, y.last()),
                 "make it as wide as the reference: compute " + formula(r), "", r.residual,
                 std::min(c.residual, failing.tolerance), 0.9, 0, Blame::kNone});
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
      out.push_back({"timestep.theta",
                     fmt::format("reference: {}; yours: cosines and sines too, of angles by another law", formula(r)),
                     "compute " + formula(r), "", r.residual, failing.tolerance, 2, 0, Blame::kNone});
      return;
    }
    if (c.residual > limit || c.residual > 0.3 * residual_of(r, failing.candidate_of(item), failing.c)) return;
    const Format held = c.time ? c.time : c.frequency ? c.frequency : c.angle;
    const char* cause = held                         ? held->cause
                        : c.cos_first != r.cos_first ? "timestep.cos_sin_order"
                        : c.sine != r.sine           ? "timestep.sign"
                        : c.factor != r.factor       ? "timestep.factor"
                                                     : "timestep.theta";  // or what its exponent is divided by
    const double complexity = c.factor != r.factor && is_of_another_step(failing) ? 1.6 : 0.7;
    out.push_back({cause, fmt::format("reference: {}; yours: {}", formula(r), formula(c)), "compute " + formula(r), "",
                   r.residual, std::min(c.residual, failing.tolerance), complexity, 0, Blame::kNone});
    return;
  }
}

// The timesteps of all steps make another schedule: both must fall, as noise does.
void search_schedule(std::vector<std::array<double, 3>> all, Findings& out) {
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a[2] < b[2]; });
  std::vector<double> r, c;
  double latest = -1;
  for (const auto& [theirs, mine, step] : all) {
    if (step == latest) continue;  // each step once
    latest = step;
    r.push_back(theirs), c.push_back(mine);
  }
  const auto falls = [](const std::vector<double>& x) {
    return std::is_sorted(x.rbegin(), x.rend()) && x.front() > x.back();
  };
  if (r.size() < 2 || !falls(r) || !falls(c)) return;
  const double unit = r[0] > 2 ? 1000 : 1;  // timesteps or sigmas
  for (double& value : r) value /= unit;
  for (double& value : c) value /= unit;
  r.push_back(0), c.push_back(0);
  const Schedule of_r = explain_schedule(r), of_c = explain_schedule(c);
  const auto said = [](const Schedule& s) { return s.residual < 5e-3 ? " (" + s.words + ")" : ""; };
  out.push_back({"scheduler.sigmas",
                 fmt::format("reference: sigmas {}{}; yours: {}{}", numbers(r), said(of_r), numbers(c), said(of_c)),
                 "make the schedule as the reference does: shift and terminal stretch", "", 0, 0, 1.2, 0,
                 Blame::kNone});
}

struct PoorerNumber {
  const char* cause;
  const char* words;
  double (*round)(double);
};

const PoorerNumber kPoorer[] = {
    {"precision.integer", "cut to a whole number", [](double x) { return std::trunc(x); }},
    {"precision.integer", "rounded to a whole number", [](double x) { return std::nearbyint(x); }},
    {"precision.integer", "raised to a whole number", [](double x) { return std::ceil(x); }},
    {"precision.f16", "in float16",
     [](double x) { return static_cast<double>(float_from(half_from(static_cast<float>(x)))); }},
    {"precision.bf16", "in bfloat16",
     [](double x) { return static_cast<double>(float_from(bfloat16_from(static_cast<float>(x)))); }},
};

// Is the candidate's timestep the reference's as such a number, at every step, and different from it at some?
bool is_poorer(const PoorerNumber& poorer, double unit, const std::vector<std::array<double, 3>>& all) {
  bool differs = false;
  for (const std::array<double, 3>& each : all) {
    const double theirs = each[0], mine = each[1];
    const double exact = unit * theirs, slack = 3e-6 * std::fabs(exact);
    // What f32 made of a whole number may lie just below it: cut, it has lost one or it has not.
    const auto is = [&](double value) { return std::fabs(unit * mine - poorer.round(value)) <= slack; };
    if (!is(exact) && !is(exact - slack) && !is(exact + slack)) return false;
    differs = differs || std::fabs(exact - unit * mine) > slack;
  }
  return differs;
}

// One number a sample: what is it, in terms of the reference's?
void search_value(Case& failing, Findings& out) {
  if (failing.r.size() > 8) return;
  const double r = failing.r.v[0], c = failing.c.v[0];
  const double near = std::max(2e-3, failing.tolerance);  // in a coarse precision a factor is known no better
  const auto is = [near](double a, double b) { return std::fabs(a - b) <= near * std::max(std::fabs(b), 1e-6); };
  const auto add = [&](const char* cause, std::string explanation, std::string fix) {
    out.push_back({cause, std::move(explanation), std::move(fix), "", 0, 0, 0.6, 0, Blame::kNone});
  };
  const std::string values = fmt::format("reference: {:.6g}; yours: {:.6g}", r, c);
  // At one step 0 may be the index, 1 - t, or nothing at all: the other steps decide.
  const RunView& run = failing.reference_run();
  std::vector<std::array<double, 3>> all{{r, c, static_cast<double>(failing.step)}};
  for (size_t i = 0; i < run.records.size(); ++i) {
    const RecordedTensor& record = run.records[i];
    const size_t partner = failing.partner ? failing.partner(i) : SIZE_MAX;
    if (record.key.name != failing.name || record.role != failing.role || record.key.step == failing.step ||
        partner == SIZE_MAX || !record.load || all.size() > 64)
      continue;
    const Values &other_r = failing.load_reference(i), &other_c = failing.load_candidate(partner);
    if (other_r.empty() || other_c.empty()) continue;
    all.push_back({other_r.v[0], other_c.v[0], static_cast<double>(record.key.step)});
  }
  const auto holds = [&](const auto& rule) {
    return std::all_of(all.begin(), all.end(), [&](const auto& step) { return rule(step[0], step[1], step[2]); });
  };
  // The index of the step, counted from 0 or 1, up or down, perhaps scaled like a sigma.
  double last = 0;
  for (const auto& step : all) last = std::max(last, step[2]);
  if (failing.step >= 0 && !is(r, c))
    for (const double unit : {1.0, 0.001, 1 / (last + 1)})
      for (const double first : {0.0, 1.0})
        for (const bool down : {false, true})
          if (holds([&](double, double mine, double index) {
                return std::fabs(mine - unit * ((down ? last - index : index) + first)) < 1e-6 * std::max(1.0, mine);
              }))
            return add("timestep.index_as_value",
                       values + fmt::format(", the index of the step{}{}{}", down ? " counted down" : "",
                                            first == 0 ? "" : " counted from 1", unit == 1 ? "" : ", scaled"),
                       "pass the timestep's value, not its index");
  // One more or less at every step: whole numbers less one would also pass for numbers just below them, cut.
  const double by = c - r;
  for (const double unit : {1.0, 1000.0})
    if (const double whole = std::nearbyint(unit * by);
        all.size() > 1 && whole != 0 && holds([&](double theirs, double mine, double) {
          return std::fabs(unit * (mine - theirs) - whole) <= 1e-5 * std::max(1.0, unit * std::fabs(theirs));
        }))
      return add("timestep.offset", values + fmt::format(", which is t {:+g} at every step", whole / unit),
                 "pass the timestep as the reference does");
  // A poorer number, taken as it is or as a timestep of a thousand: told apart from a factor by all steps together.
  for (const double unit : {1.0, 1000.0, 1 / 1000.0})
    for (const PoorerNumber& poorer : kPoorer)
      if (is_poorer(poorer, unit, all))
        return add(
            poorer.cause,
            values + fmt::format(", which is {} {}", unit == 1 ? "t" : fmt::format("{:g} t", unit), poorer.words),
            "keep the timestep a float");
  if (holds([&](double theirs, double mine, double) { return is(mine, 1000 * theirs); }))
    return add("timestep.scale", values + ", 1000 times as large: a timestep where a sigma is wanted",
               "divide by 1000 (num_train_timesteps)");
  if (holds([&](double theirs, double mine, double) { return is(1000 * mine, theirs); }))
    return add("timestep.scale", values + ", 1000 times too small: a sigma where a timestep is wanted",
               "multiply by 1000 (num_train_timesteps)");
  if (holds([&](double theirs, double mine, double) { return std::fabs(mine - (1 - theirs)) < near; }))
    return add("timestep.inverted", values + ", which is 1 - t", "noise runs from 1 to 0 here");
  // Another step's value: the index is off.
  for (size_t i = 0; i < run.records.size(); ++i) {
    const RecordedTensor& record = run.records[i];
    if (record.key.name != failing.name || record.role != failing.role || record.key.step == failing.step ||
        !record.load)
      continue;
    const Values& other = failing.load_reference(i);
    if (other.empty() || !is(c, other.v[0]) || is(r, other.v[0])) continue;
    return add("timestep.step_index", values + fmt::format(", which is the reference's at step {}", record.key.step),
               fmt::format("the index is off by {}", record.key.step - failing.step));
  }
  // The same rule at all steps: a factor, an offset, a power.
  if (all.size() >= 3) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (const auto& [x, y, index] : all) sx += x, sy += y, sxx += x * x, sxy += x * y;
    const double n = static_cast<double>(all.size()), variance = sxx - sx * sx / n;
    const double a = variance > 0 ? (sxy - sx * sy / n) / variance : 1, b = (sy - a * sx) / n;
    if (holds([&](double theirs, double mine, double) { return is(mine, a * theirs + b); }) && a != 0) {
      const bool offset = std::fabs(b) > 2e-3 * std::fabs(sy / n);
      return add(offset ? "timestep.offset" : "timestep.scale",
                 values + fmt::format(", which is {} t{}", number(a), offset ? fmt::format(" {:+.5g}", b) : ""),
                 "pass the timestep as the reference does");
    }
    for (const auto& [power, words] : {std::pair{2.0, "t^2"}, {0.5, "sqrt(t)"}, {-1.0, "1/t"}})
      for (const double unit : {1.0, 1000.0})
        if (holds([&, power = power](double theirs, double mine, double) {
              return theirs > 0 && is(mine, unit * std::pow(theirs / unit, power));
            }))
          return add("timestep.function", values + fmt::format(", which is {}", words), "pass t itself");
  }
  search_schedule(all, out);
}

}  // namespace

void search_timestep(Case& failing, Findings& out) {
  if (!std::isfinite(failing.error)) return;
  search_value(failing, out);
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
