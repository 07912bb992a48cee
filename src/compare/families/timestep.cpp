// The timestep itself (sigma, timestep or index?) and its features [cos | sin] of t * factor * theta^(-i/half).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "compare/families/fit.h"

namespace lockstep {
namespace {

struct Features {
  bool cos_first = true;
  double factor = 1000, theta = 1e4;
  double shift = 0;  // the exponent divides by half - shift
  double residual = INFINITY;
};

std::string formula(const Features& f) {
  return fmt::format("[{}](t * {:g} * {:g}^(-i/{}))", f.cos_first ? "cos, sin" : "sin, cos", f.factor, f.theta,
                     f.shift == 0 ? "half" : "(half - 1)");
}

double residual_of(const Features& f, const Values& t, const Values& y) {
  const int64_t half = y.last() / 2;
  double dd = 0, yy = 0;
  for (int64_t row = 0; row < y.rows(); ++row)
    for (int64_t i = 0; i < half; ++i) {
      const double a = t.v[static_cast<size_t>(row)] * f.factor *
                       std::exp(-std::log(f.theta) * static_cast<double>(i) / (static_cast<double>(half) - f.shift));
      const double first = f.cos_first ? std::cos(a) : std::sin(a), second = f.cos_first ? std::sin(a) : std::cos(a);
      const double d0 = first - y.row(row)[static_cast<size_t>(i)],
                   d1 = second - y.row(row)[static_cast<size_t>(i + half)];
      dd += d0 * d0 + d1 * d1;
      yy += 1;
    }
  return std::sqrt(dd / yy);
}

Features fit(const Values& t, const Values& y) {
  Features best;
  for (const bool cos_first : {true, false})
    for (const double factor : {1000.0, 1.0, 0.001, 1e6})
      for (const double theta : {1e4, 1e3, 1e5, 1e6, 100.0, 256.0, 2e4, 5e3})
        for (const double shift : {0.0, 1.0}) {
          Features f{cos_first, factor, theta, shift, 0};
          f.residual = residual_of(f, t, y);
          if (f.residual < best.residual) best = f;
        }
  return best;
}

void search_features(Case& failing, Findings& out) {
  if (failing.r.last() < 8 || failing.r.last() % 2) return;
  for (const Item& item : failing.items) {
    if (checked_numel(item.shape) != failing.r.rows() || item.relation == Relation::kEarlier) continue;
    const Features r = fit(failing.reference_of(item), failing.r);
    const double limit = std::max(2e-3, failing.tolerance);  // sines of large arguments in f32
    if (r.residual > limit) continue;
    if (failing.note_local(residual_of(r, failing.candidate_of(item), failing.c))) return;
    const Features c = fit(failing.candidate_of(item), failing.c);
    if (c.residual > limit || c.residual > 0.3 * residual_of(r, failing.candidate_of(item), failing.c)) return;
    const char* cause = c.cos_first != r.cos_first ? "timestep.cos_sin_order"
                        : c.factor != r.factor     ? "timestep.factor"
                        : c.theta != r.theta       ? "timestep.theta"
                                                   : "timestep.frequencies";
    out.push_back({cause, fmt::format("reference: {}; yours: {}", formula(r), formula(c)), "compute " + formula(r), "",
                   r.residual, std::min(c.residual, failing.tolerance), 0.7, 0, Blame::kNone});
    return;
  }
}

// One number a sample: what is it, in terms of the reference's?
void search_value(Case& failing, Findings& out) {
  if (failing.r.size() > 8) return;
  const double r = failing.r.v[0], c = failing.c.v[0];
  const auto is = [](double a, double b) { return std::fabs(a - b) <= 2e-3 * std::max(std::fabs(b), 1e-6); };
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
  if (failing.step >= 0 && !is(r, c) && holds([](double, double mine, double index) { return mine == index; }))
    return add("timestep.index_as_value", values + ", the index of the step",
               "pass the timestep's value, not its index");
  if (holds([&](double theirs, double mine, double) { return is(mine, 1000 * theirs); }))
    return add("timestep.scale", values + ", 1000 times as large: a timestep where a sigma is wanted",
               "divide by 1000 (num_train_timesteps)");
  if (holds([&](double theirs, double mine, double) { return is(1000 * mine, theirs); }))
    return add("timestep.scale", values + ", 1000 times too small: a sigma where a timestep is wanted",
               "multiply by 1000 (num_train_timesteps)");
  if (holds([&](double theirs, double mine, double) { return std::fabs(mine - (1 - theirs)) < 2e-3; }))
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
  if (c == std::trunc(c) && r != std::trunc(r) && std::fabs(c - r) < 1)
    add("precision.integer", values + ", cut to a whole number", "keep the timestep a float");
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
