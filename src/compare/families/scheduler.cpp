// x' = x + dt v: the step of the sampler, and the schedule its dt come from.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/families/fit.h"

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

struct Schedule {
  std::string words;
  double residual = INFINITY;
};

// Flow matching schedules: even steps, shifted by mu, stretched to end at a terminal value.
Schedule explain_schedule(const std::vector<double>& sigmas) {
  const size_t n = sigmas.size() - 1;
  Schedule best;
  const auto consider = [&](const std::string& words, const std::vector<double>& s) {
    double worst = 0;
    for (size_t i = 0; i < n; ++i) worst = std::max(worst, std::fabs(s[i] - sigmas[i]));
    if (worst < best.residual) best = {words, worst};
  };
  std::vector<double> even(n);
  for (size_t i = 0; i < n; ++i) even[i] = 1 - static_cast<double>(i) / static_cast<double>(n);
  consider("even steps", even);
  const auto shifted = [&](double mu) {
    std::vector<double> s(n);
    for (size_t i = 0; i < n; ++i) s[i] = std::exp(mu) / (std::exp(mu) + 1 / even[i] - 1);
    return s;
  };
  const auto stretched = [&](std::vector<double> s, double terminal) {
    const double factor = (1 - s[n - 1]) / (1 - terminal);
    for (double& value : s) value = 1 - (1 - value) / factor;
    return s;
  };
  if (n < 3) return best;
  for (int i = -300; i <= 400; ++i) {
    const double mu = 0.01 * i;
    if (i) consider(fmt::format("shifted by mu near {:.2f}", mu), shifted(mu));
    for (const double terminal : {0.02, 0.1, 0.05})
      if (n > 1)
        consider(
            fmt::format("{}stretched to end at {}", i ? fmt::format("shifted by mu near {:.2f}, ", mu) : "", terminal),
            stretched(shifted(mu), terminal));
  }
  return best;
}

std::string list(const std::vector<double>& x) {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(x.size(), 6); ++i) out += (i ? ", " : "") + fmt::format("{:.4g}", x[i]);
  return out + (x.size() > 6 ? ", ..." : "");
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
    out.explanation = fmt::format("reference: sigmas {}{}; yours: {}{}", list(s_r),
                                  of_r.residual < 5e-3 ? " (" + of_r.words + ")" : "", list(s_c),
                                  of_c.residual < 5e-3 ? " (" + of_c.words + ")" : "");
    set("scheduler.sigmas", of_r.residual < 5e-3
                                ? "make the schedule as the reference does: " + of_r.words
                                : "make the schedule as the reference does: shift and terminal stretch");
    return out;
  }
  set("scheduler.dt", fmt::format("dt must be {}", number(r.dt)));
  return out;
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
      }
      return;
    }
}

}  // namespace lockstep
