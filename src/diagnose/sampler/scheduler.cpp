// x' = x + dt v: the step of the sampler, and the schedule its dt come from.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "diagnose/case/thresholds.h"
#include "diagnose/sampler/schedule.h"
#include "diagnose/search/fit.h"
#include "diagnose/search/number_formats.h"
#include "diagnose/search/report.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

struct Step {
  double keep = 0, dt = 0;  // x' = keep x + dt v
  double residual = INFINITY;
};

double residual_of(const Step& step, const Values& x, const Values& v, const Values& y) {
  Residual unexplained;
  for (size_t i = 0; i < y.v.size(); ++i) {
    unexplained.add(step.keep * x.v[i] + step.dt * v.v[i], y.v[i]);
  }
  return unexplained.relative();
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

// A sigma itself in the place of a difference.
std::string sigma_words(double dt, const std::vector<double>& sigmas, int step) {
  for (const int next : {0, 1}) {
    const size_t at = static_cast<size_t>(step + next);
    if (at >= sigmas.size() || std::fabs(sigmas[at]) < 1e-6) continue;
    if (std::fabs(std::fabs(dt) - sigmas[at]) <= 5e-4 * sigmas[at])
      return fmt::format("{}sigma[i{}]", dt < 0 ? "-" : "", next ? "+1" : "");
  }
  return "";
}

// What every dt is multiplied with; 0 when they do not agree.
double common_factor(const std::vector<double>& of, const std::vector<double>& by) {
  if (of.size() != by.size() || of.size() < 2 || by[0] == 0) return 0;
  const double factor = of[0] / by[0];
  for (size_t i = 1; i < of.size(); ++i)
    if (by[i] == 0 || std::fabs(of[i] / by[i] - factor) > 2e-3 * std::fabs(factor)) return 0;
  return factor;
}

Finding describe(Case& failing, const Step& r, const Step& c, const std::string& prediction) {
  Finding out{
      .cause = {},
      .explanation = fmt::format("reference: x + {} v; yours: {} x + {} v", number(r.dt), number(c.keep), number(c.dt)),
      .residual_reference = r.residual,
      .residual = c.residual,
      .complexity = 0.7};
  const auto is = [](double a, double b) { return std::fabs(a - b) <= 2e-3 * std::fabs(b) + 1e-6; };
  const auto set = [&](Cause cause, std::string fix) { out.cause = cause, out.fix = std::move(fix); };
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
  if (const std::string words = sigma_words(c.dt, s_r, failing.step); !words.empty()) {
    out.explanation += "; that is " + words;
    set("scheduler.dt", "dt is the difference of two sigmas: sigma[i+1] - sigma[i]");
    return out;
  }
  if (const double factor = common_factor(dt_c, dt_r); factor != 0 && !is(factor, 1)) {
    out.explanation += fmt::format("; in every step {} times the reference's dt", number(factor));
    set("scheduler.scale", fmt::format("dt is multiplied with {} once too often", number(factor)));
    return out;
  }
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

// How far neighbours of a tensor, along its last axis and across it, are alike: noise has none that are.
double likeness_of_neighbours(std::span<const float> x, size_t width) {
  double most = 0;
  for (const size_t apart : {size_t{1}, width}) {
    if (apart >= x.size()) continue;
    most = std::max(most, std::fabs(correlation(x.first(x.size() - apart), x.subspan(apart))));
  }
  return most;
}

// x' = a x + b v + noise: what is left over looks like noise drawn anew.
bool search_noise(Case& failing, const std::vector<const Item*>& items, const Item& x, const Item& v, const Step& r,
                  const Report& report) {
  const auto of = [&](const Item& item) -> std::span<const float> { return failing.candidate_of(item).v; };
  const Step own = fit_step(failing.candidate_of(x), failing.candidate_of(v), failing.c);
  const double n = static_cast<double>(failing.c.v.size()), limit = 5 / std::sqrt(n);
  if (n < 256) return false;
  // The reference's own step first: then only noise was added.
  for (const Step& step : {Step{1, r.dt, 0}, own}) {
    double ss = 0, sum = 0, fourth = 0;
    std::vector<float> rest(failing.c.v.size());
    for (size_t i = 0; i < rest.size(); ++i) {
      rest[i] = static_cast<float>(failing.c.v[i] - step.keep * of(x)[i] - step.dt * of(v)[i]);
      sum += rest[i], ss += static_cast<double>(rest[i]) * rest[i];
    }
    const double mean = sum / n, variance = ss / n - mean * mean;
    for (const float value : rest) fourth += std::pow(value - mean, 4);
    if (!(variance > 0) || std::fabs(fourth / n / (variance * variance) - 3) > 5 * limit) continue;
    if (std::fabs(mean) > limit * std::sqrt(variance)) continue;
    if (likeness_of_neighbours(rest, static_cast<size_t>(failing.c.last())) > limit) continue;
    if (std::any_of(items.begin(), items.end(),
                    [&](const Item* item) { return std::fabs(correlation(rest, of(*item))) > limit; }))
      continue;
    return report.add({"scheduler.noise", "use the deterministic step: no noise is added while sampling"},
                      fmt::format("{} x + {} v plus normal noise of deviation {}", number(step.keep), number(step.dt),
                                  number(std::sqrt(variance))),
                      failing.tolerance, 1.5);
  }
  return false;
}

// x' goes through the picture at the end, x - sigma v, and that was held to bounds.
bool search_held_end(Case& failing, const Item& x, const Item& v, const Report& report) {
  const std::vector<double> sigmas = sigmas_of(all_dt(failing, false, v.name));
  const size_t at = static_cast<size_t>(failing.step);
  if (at + 1 >= sigmas.size() || !(sigmas[at] > 1e-6)) return false;
  const double kept = sigmas[at + 1] / sigmas[at];
  const Values &of_x = failing.candidate_of(x), &of_v = failing.candidate_of(v);
  std::vector<float> end(failing.c.v.size()), right(end.size());
  float most = 0;
  for (size_t i = 0; i < end.size(); ++i) {
    end[i] = static_cast<float>((failing.c.v[i] - kept * of_x.v[i]) / (1 - kept));
    right[i] = static_cast<float>(of_x.v[i] - sigmas[at] * of_v.v[i]);
    most = std::max(most, std::fabs(end[i]));
  }
  size_t cut = 0;
  for (float& value : right) cut += std::fabs(value) > most, value = std::clamp(value, -most, most);
  const double residual = relative_error(end, right);
  return cut >= 2 && failing.explains_candidate(residual) &&
         report.add({"scheduler.formula", "do not clamp or threshold what the sampler predicts"},
                    fmt::format("a step towards x - sigma v, which is held to {:.4g}", most), residual, 0.8);
}

EditName of_latest() {
  return {"scheduler.formula", "the step of the reference uses the latest latents and the latest prediction alone"};
}

using Named = std::pair<std::string, const Values*>;

// Two older predictions or latents: samplers of third order.
bool search_older(Case& failing, const Item& x, const Item& v, const std::vector<Named>& others, const Report& report) {
  constexpr size_t kMostOlder = 8;
  const auto of = [&](const Item& item) -> std::span<const float> { return failing.candidate_of(item).v; };
  for (size_t i = 0; i < std::min(others.size(), kMostOlder); ++i)
    for (size_t j = i + 1; j < std::min(others.size(), kMostOlder); ++j) {
      const Values *a = others[i].second, *b = others[j].second;
      if (a->size() != failing.c.size() || b->size() != failing.c.size()) continue;
      const std::vector<double> k = least_squares({of(x), of(v), a->v, b->v}, failing.c.v);
      Residual unexplained;
      for (size_t e = 0; e < failing.c.v.size(); ++e)
        unexplained.add(k[0] * of(x)[e] + k[1] * of(v)[e] + k[2] * a->v[e] + k[3] * b->v[e], failing.c.v[e]);
      const double residual = unexplained.relative();
      if (failing.explains_candidate(residual))
        return report.add(of_latest(),
                          fmt::format("{} x + {} v + {} * {} + {} * {}", number(k[0]), number(k[1]), number(k[2]),
                                      others[i].first, number(k[3]), others[j].first),
                          residual, 0.7);
    }
  return false;
}

// x' = a x + b v + c w with one more tensor: an older prediction, the noise, another sample.
bool search_third(Case& failing, const std::vector<const Item*>& items, const Item& x, const Item& v, const Step& r,
                  const Report& report) {
  const auto of = [&](const Item& item) -> std::span<const float> { return failing.candidate_of(item).v; };
  // Predictions of other steps are no neighbours, but samplers of higher order use them.
  std::vector<Named> others;
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
    Residual unexplained;
    for (size_t i = 0; i < failing.c.v.size(); ++i) {
      unexplained.add(k[0] * of(x)[i] + k[1] * of(v)[i] + k[2] * w->v[i], failing.c.v[i]);
    }
    const double residual = unexplained.relative();
    if (!failing.explains_candidate(residual)) continue;
    if (std::fabs(k[1]) < 1e-3 * std::fabs(k[2]) && std::fabs(k[2] - r.dt) < 1e-2 * std::fabs(r.dt))
      return report.add({"scheduler.other_prediction", "pass the latest combined prediction to the step"},
                        "x + dt * " + label, residual, 0.6);
    return report.add(of_latest(),
                      fmt::format("{} x + {} v + {} * {}", number(k[0]), number(k[1]), number(k[2]), label), residual,
                      0.7);
  }
  return search_older(failing, x, v, others, report) || search_held_end(failing, x, v, report) ||
         search_noise(failing, items, x, v, r, report);
}

// dt, or the sigmas it is the difference of, in whole steps of a grid: whole timesteps, sigmas of few decimals. All
// steps together tell it, and how they were made whole.
bool search_grid(Case& failing, const Step& r, const Step& c, const std::string& prediction, const Report& report) {
  const double near = 4 * std::max(1e-6, failing.tolerance * 0.1) * std::max(1.0, std::fabs(r.dt));
  if (std::fabs(c.dt - r.dt) < near) return false;
  const std::vector<double> dt_r = all_dt(failing, false, prediction), dt_c = all_dt(failing, true, prediction);
  const std::vector<double> sigmas = sigmas_of(dt_r);
  if (dt_r.empty() || dt_r.size() != dt_c.size()) return false;
  struct Cut {
    const char* words;
    double (*whole)(double);
  };
  static const Cut kCuts[] = {{"rounded", [](double x) { return std::nearbyint(x); }},
                              {"cut", [](double x) { return std::trunc(x); }},
                              {"raised", [](double x) { return std::ceil(x); }}};
  for (const double grid : {1000.0, 100.0, 10000.0, 10.0, 256.0}) {
    // A grid as fine as what is known of dt fits everything, and so does any on few steps.
    if (2 * near * grid > 0.05 || (grid != 1000 && dt_r.size() < 3)) continue;
    for (const bool of_dt : {false, true})
      for (const Cut& cut : kCuts) {
        const auto fits = [&](size_t i) {
          for (const double a : {0.0, -kGridSlack, kGridSlack})
            for (const double b : {0.0, -kGridSlack, kGridSlack}) {
              const double made = of_dt
                                      ? cut.whole(grid * dt_r[i] + a) / grid
                                      : (cut.whole(grid * sigmas[i + 1] + a) - cut.whole(grid * sigmas[i] + b)) / grid;
              if (std::fabs(made - dt_c[i]) <= near) return true;
            }
          return false;
        };
        size_t fitting = 0;
        while (fitting < dt_r.size() && fits(fitting)) ++fitting;
        if (fitting < dt_r.size()) continue;
        const std::string what = grid == 1000 ? (of_dt ? "a whole number of timesteps" : "whole timesteps")
                                              : fmt::format("whole {}ths", grid);
        return report.add({"scheduler.dt", "make dt of the sigmas as they are: sigma[i+1] - sigma[i]"},
                          fmt::format("x + {:.7g} v: {} {} to {}, at every step", c.dt,
                                      of_dt ? "dt is" : "the difference of sigmas that are", cut.words, what),
                          c.residual, 0.6);
      }
  }
  return false;
}

// dt, or the sigmas or timesteps it is the difference of, in a poorer format. One step alone may fit several of
// them: what fits all steps is told first.
bool search_coarse(Case& failing, const Step& r, const Step& c, const std::string& prediction, bool everywhere,
                   const Report& report) {
  const double near = std::max(1e-6, failing.tolerance * 0.1) * std::max(1.0, std::fabs(r.dt));
  if (std::fabs(c.dt - r.dt) < 4 * near) return false;
  const std::vector<double> dt_r = all_dt(failing, false, prediction), dt_c = all_dt(failing, true, prediction);
  const std::vector<double> sigmas = sigmas_of(dt_r);
  const size_t at = static_cast<size_t>(failing.step);
  const bool is_small = std::fabs(c.dt - r.dt) <= 0.05 * std::fabs(r.dt);  // no rounding of sigmas is coarser
  const auto add = [&](Cause cause, const std::string& what) {
    return report.add({cause, "keep sigmas, timesteps and dt in f32"},
                      fmt::format("x + {:.7g} v, which is {}", c.dt, what), c.residual, 0.6);
  };
  if (everywhere && dt_r.size() != dt_c.size()) return false;
  const size_t first = everywhere ? 0 : at, end = everywhere ? dt_r.size() : at + 1;
  const auto fits = [&](double limit, const auto& made) {
    for (size_t i = first; i < end; ++i)
      if (!(std::fabs((i == at ? c.dt : dt_c[i]) - made(i)) <= limit)) return false;
    return end > first;
  };
  for (const NumberFormat& format : half_formats())
    if (fits(near, [&](size_t i) { return in_format(i == at ? r.dt : dt_r[i], &format); }))
      return add(format.cause, fmt::format("that dt in {}", format.name));
  if (!is_small || at + 1 >= sigmas.size()) return false;
  for (const double scale : {1.0, 1000.0})
    for (const NumberFormat& format : half_formats())
      if (fits(4 * near, [&](size_t i) {
            return (in_format(scale * sigmas[i + 1], &format) - in_format(scale * sigmas[i], &format)) / scale;
          }))
        return add(format.cause,
                   fmt::format("the difference of {} in {}", scale == 1 ? "sigmas" : "timesteps", format.name));
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
      const Report report(fmt::format("x + {:.7g} v with v = {}", r.dt, v->label()), r.residual, out);
      // No step at all: another tensor stands here, which is said elsewhere.
      if (good && std::fabs(c.dt) < 1e-4 * std::fabs(r.dt) && std::fabs(c.keep - 1) < 1e-4) return;
      if (good && (search_coarse(failing, r, c, v->name, true, report) || search_grid(failing, r, c, v->name, report) ||
                   search_coarse(failing, r, c, v->name, false, report)))
        return;
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
          report.add({"scheduler.other_prediction", "pass the combined prediction to the step"},
                     "x + dt * " + other->label(), o.residual, 0.6);
          return;
        }
        search_third(failing, items, *x, *v, r, report);
      }
      return;
    }
}

}  // namespace lockstep
