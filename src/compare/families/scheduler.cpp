// x' = x + dt v: the step of the sampler, and the schedule its dt come from.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/families/fit.h"
#include "compare/families/number_formats.h"
#include "compare/families/schedule.h"

namespace lockstep {
namespace {

struct Step {
  double keep = 0, dt = 0;  // x' = keep x + dt v
  double residual = INFINITY;
};

double residual_of(const Step& step, const Values& x, const Values& v, const Values& y) {
  double dd = 0, yy = 0;
  for (size_t i = 0; i < y.v.size(); ++i) {
    const double d = step.keep * x.v[i] + step.dt * v.v[i] - y.v[i];
    dd += d * d, yy += static_cast<double>(y.v[i]) * y.v[i];
  }
  return yy > 0 ? std::sqrt(dd / yy) : INFINITY;
}

Step fit_step(const Values& x, const Values& v, const Values& y) {
  const std::vector<double> k = least_squares({x.v, v.v}, y.v);
  Step out{k[0], k[1], 0};
  out.residual = residual_of(out, x, v, y);
  return out;
}

// The records of one side that make each step: latents before, prediction, latents after.
struct Chain {
  std::vector<std::array<size_t, 3>> steps;
};

Chain chain_of(const RunView& run, const std::string& name, const std::string& prediction) {
  Chain out;
  std::vector<size_t> after;
  for (size_t i = 0; i < run.records.size(); ++i)
    if (run.records[i].key.name == name && run.records[i].key.step >= 0 && run.records[i].load) after.push_back(i);
  size_t before = SIZE_MAX;
  if (after.empty()) return out;
  for (size_t i = 0; i < after[0]; ++i)  // the start: the last stage of that size before the loop
    if (run.records[i].role == Role::kCheckpoint && run.records[i].key.step < 0 &&
        run.records[i].shape == run.records[after[0]].shape)
      before = i;
  for (const size_t now : after) {
    size_t v = SIZE_MAX;
    for (size_t i = now; i-- > 0 && run.records[i].key.step == run.records[now].key.step;)
      if (run.records[i].key.name == prediction && run.records[i].shape == run.records[now].shape) {
        v = i;  // the latest: the combined one where there is guidance
        break;
      }
    if (before != SIZE_MAX && v != SIZE_MAX) out.steps.push_back({before, v, now});
    before = now;
  }
  return out;
}

// The schedule as sigmas: dt summed from the end, which is 0.
std::vector<double> sigmas_of(const std::vector<double>& dt) {
  std::vector<double> out(dt.size() + 1);
  for (size_t i = dt.size(); i-- > 0;) out[i] = out[i + 1] - dt[i];
  return out;
}

std::vector<double> all_dt(Case& failing, bool candidate, const std::string& prediction) {
  const RunView& run = candidate ? failing.candidate_run() : failing.reference_run();
  std::vector<double> out;
  for (const auto& [x, v, y] : chain_of(run, failing.name, prediction).steps) {
    const auto load = [&](size_t i) -> const Values& {
      return candidate ? failing.load_candidate(i) : failing.load_reference(i);
    };
    out.push_back(fit_step(load(x), load(v), load(y)).dt);
  }
  return out;
}

Finding describe(Case& failing, const Step& r, const Step& c, const std::string& prediction) {
  Finding out{
      "",          fmt::format("reference: x + {} v; yours: {} x + {} v", number(r.dt), number(c.keep), number(c.dt)),
      "",          "",
      r.residual,  c.residual,
      0.7,         0,
      Blame::kNone};
  const auto is = [](double a, double b) { return std::fabs(a - b) <= 2e-3 * std::fabs(b) + 1e-6; };
  const auto set = [&](const char* cause, std::string fix) { out.cause = cause, out.fix = std::move(fix); };
  if (!is(c.keep, 1)) {
    set("scheduler.formula", "the step is x + dt v: the old latents are kept whole");
    return out;
  }
  if (is(c.dt, -r.dt)) {
    set("scheduler.sign", "dt is sigma[i+1] - sigma[i], which is negative: the sign is turned round");
    return out;
  }
  const std::vector<double> dt_r = all_dt(failing, false, prediction), dt_c = all_dt(failing, true, prediction);
  for (size_t i = 0; i < dt_r.size(); ++i)
    if (static_cast<int>(i) != failing.step && is(c.dt, dt_r[i])) {
      out.explanation += fmt::format("; that is the reference's dt of step {}", i);
      set("scheduler.step_index",
          fmt::format("the index of the step is off by {}", static_cast<int>(i) - failing.step));
      return out;
    }
  for (const double factor : {1000.0, 0.001})
    if (is(c.dt, factor * r.dt)) {
      set("scheduler.scale", factor > 1 ? "dt is taken from timesteps, not from sigmas: divide by 1000"
                                        : "dt is divided by 1000 once too often");
      return out;
    }
  const std::vector<double> s_r = sigmas_of(dt_r), s_c = sigmas_of(dt_c);
  if (s_r.size() > 2 && s_c.size() == s_r.size()) {
    const Schedule of_r = explain_schedule(s_r), of_c = explain_schedule(s_c);
    out.explanation = fmt::format("reference: sigmas {}{}; yours: {}{}", numbers(s_r),
                                  of_r.residual < 5e-3 ? " (" + of_r.words + ")" : "", numbers(s_c),
                                  of_c.residual < 5e-3 ? " (" + of_c.words + ")" : "");
    set("scheduler.sigmas", of_r.residual < 5e-3
                                ? "make the schedule as the reference does: " + of_r.words
                                : "make the schedule as the reference does: shift and terminal stretch");
    return out;
  }
  set("scheduler.dt", fmt::format("dt must be {}", number(r.dt)));
  return out;
}

// x' = a x + b v + c w with one more tensor: an older prediction, the noise, another sample.
bool search_third(Case& failing, const std::vector<const Item*>& items, const Item& x, const Item& v, const Step& r,
                  Findings& out) {
  const auto of = [&](const Item& item) -> std::span<const float> { return failing.candidate_of(item).v; };
  const auto add = [&](std::string yours, std::string fix, double residual) {
    out.push_back({"scheduler.formula",
                   fmt::format("reference: x + {} v with v = {}; yours: {}", number(r.dt), v.label(), yours),
                   std::move(fix), "", r.residual, residual, 0.7, 0, Blame::kNone});
    return true;
  };
  // Predictions of other steps are no neighbours, but samplers of higher order use them.
  std::vector<std::pair<std::string, const Values*>> others;
  for (const Item* item : items)
    if (item != &x && item != &v) others.emplace_back(item->label(), &failing.candidate_of(*item));
  const RunView& run = failing.candidate_run();
  for (size_t i = failing.candidate_record(); i-- > 0 && others.size() < 24;)
    if ((run.records[i].key.name == v.name || run.records[i].key.name == failing.name) && run.records[i].load &&
        same_size_shape(run.records[i].shape, failing.r.shape) && run.records[i].key.step != failing.step)
      others.emplace_back(to_string(run.records[i].key), &failing.load_candidate(i));
  for (const auto& [label, w] : others) {
    if (w->size() != failing.c.size()) continue;
    const std::vector<double> k = least_squares({of(x), of(v), w->v}, failing.c.v);
    double dd = 0, yy = 0;
    for (size_t i = 0; i < failing.c.v.size(); ++i) {
      const double d = k[0] * of(x)[i] + k[1] * of(v)[i] + k[2] * w->v[i] - failing.c.v[i];
      dd += d * d, yy += static_cast<double>(failing.c.v[i]) * failing.c.v[i];
    }
    const double residual = yy > 0 ? std::sqrt(dd / yy) : INFINITY;
    if (failing.explains_candidate(residual))
      return add(fmt::format("{} x + {} v + {} * {}", number(k[0]), number(k[1]), number(k[2]), label),
                 "the step of the reference uses the latest latents and the latest prediction alone", residual);
  }
  // What is left over looks like noise drawn anew.
  double ss = 0, sum = 0, fourth = 0;
  std::vector<float> rest(failing.c.v.size());
  for (size_t i = 0; i < rest.size(); ++i) {
    rest[i] = static_cast<float>(failing.c.v[i] - of(x)[i] - r.dt * of(v)[i]);
    sum += rest[i], ss += static_cast<double>(rest[i]) * rest[i];
  }
  const double n = static_cast<double>(rest.size()), mean = sum / n, variance = ss / n - mean * mean;
  for (const float value : rest) fourth += std::pow(value - mean, 4);
  const double limit = 5 / std::sqrt(n);
  if (n < 256 || !(variance > 0) || std::fabs(fourth / n / (variance * variance) - 3) > 5 * limit) return false;
  if (std::fabs(mean) > limit * std::sqrt(variance) || std::fabs(correlation(rest, of(x))) > limit ||
      std::fabs(correlation(rest, of(v))) > limit)
    return false;
  out.push_back({"scheduler.noise",
                 fmt::format("reference: x + {} v; yours: the same plus normal noise of deviation {}", number(r.dt),
                             number(std::sqrt(variance))),
                 "use the deterministic step: no noise is added while sampling", "", r.residual, failing.tolerance, 1.5,
                 0, Blame::kNone});
  return true;
}

// dt, or the sigmas it is the difference of, in a poorer format.
bool search_coarse(Case& failing, const Step& r, const Step& c, Findings& out) {
  const double near = std::max(1e-6, failing.tolerance * 0.1) * std::max(1.0, std::fabs(r.dt));
  for (const NumberFormat& format : half_formats()) {
    if (std::fabs(c.dt - in_format(r.dt, &format)) > near || std::fabs(c.dt - r.dt) < 4 * near) continue;
    out.push_back(
        {format.cause,
         fmt::format("reference: x + {:.7g} v; yours: x + {:.7g} v, which is that dt in {}", r.dt, c.dt, format.name),
         "keep sigmas and dt in f32", "", r.residual, c.residual, 0.6, 0, Blame::kNone});
    return true;
  }
  return false;
}

}  // namespace

void search_scheduler(Case& failing, Findings& out) {
  if (!failing.module.empty() || failing.step < 0 || !std::isfinite(failing.error)) return;
  std::vector<const Item*> items = equal_size_items(failing, 8);
  for (const Item* x : items)
    for (const Item* v : items) {
      if (x == v) continue;
      const Step r = fit_step(failing.reference_of(*x), failing.reference_of(*v), failing.r);
      if (!failing.explains(r.residual) || std::fabs(r.keep - 1) > 1e-2) continue;
      if (failing.note_local(residual_of(r, failing.candidate_of(*x), failing.candidate_of(*v), failing.c))) return;
      const Step c = fit_step(failing.candidate_of(*x), failing.candidate_of(*v), failing.c);
      const bool good = failing.explains_candidate(c.residual);
      if (good && search_coarse(failing, r, c, out)) return;
      if (good && (std::fabs(c.dt - r.dt) > 1e-3 * std::fabs(r.dt) || std::fabs(c.keep - 1) > 1e-2)) {
        out.push_back(describe(failing, r, c, v->name));
      } else if (!good) {
        // Perhaps another prediction went into the step.
        for (const Item* other : items) {
          if (other == v || other == x) continue;
          const Step o = fit_step(failing.candidate_of(*x), failing.candidate_of(*other), failing.c);
          if (!failing.explains_candidate(o.residual) || std::fabs(o.keep - 1) > 1e-2 ||
              std::fabs(o.dt - r.dt) > 1e-2 * std::fabs(r.dt))
            continue;
          out.push_back({"scheduler.other_prediction",
                         fmt::format("reference: x + dt * {}; yours: x + dt * {}", v->label(), other->label()),
                         "pass the combined prediction to the step", "", r.residual, o.residual, 0.8, 0, Blame::kNone});
          return;
        }
        search_third(failing, items, *x, *v, r, out);
      }
      return;
    }
}

}  // namespace lockstep
