#include "diagnose/sampler/timestep_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "diagnose/sampler/schedule.h"
#include "diagnose/search/fit.h"
#include "diagnose/search/number_formats.h"
#include "measure/line_fit.h"

namespace lockstep {
namespace {

// The number at one step, on both sides.
struct TimeAt {
  double theirs = 0, mine = 0;
  int step = 0;
};
using Times = std::vector<TimeAt>;

struct TimeRule {
  Cause cause;
  std::string words, fix;
};

bool same_number(double a, double b, double near) {
  return std::fabs(a - b) <= near * std::max(std::fabs(b), 1e-6);
}

template <typename Rule>
bool holds(const Times& times, const Rule& rule) {
  return std::all_of(times.begin(), times.end(), rule);
}

// The timesteps of all steps make another schedule: both must fall, as noise does.
std::optional<TimeRule> as_schedule(Times times) {
  std::sort(times.begin(), times.end(), [](const TimeAt& a, const TimeAt& b) { return a.step < b.step; });
  std::vector<double> r, c;
  for (size_t i = 0; i < times.size(); ++i) {
    if (i && times[i].step == times[i - 1].step) continue;  // each step once
    r.push_back(times[i].theirs), c.push_back(times[i].mine);
  }
  const auto falls = [](const std::vector<double>& x) {
    return std::is_sorted(x.rbegin(), x.rend()) && x.front() > x.back();
  };
  if (r.size() < 2 || !falls(r) || !falls(c)) return std::nullopt;
  const double unit = r[0] > 2 ? 1000 : 1;  // timesteps or sigmas
  for (double& value : r) value /= unit;
  for (double& value : c) value /= unit;
  r.push_back(0), c.push_back(0);
  const Schedule of_r = explain_schedule(r), of_c = explain_schedule(c);
  const auto said = [](const Schedule& s) { return s.residual < 5e-3 ? " (" + s.words + ")" : ""; };
  return TimeRule{"scheduler.sigmas",
                  fmt::format("reference: sigmas {}{}; yours: {}{}", numbers(r), said(of_r), numbers(c), said(of_c)),
                  "make the schedule as the reference does: shift and terminal stretch"};
}

struct PoorerNumber {
  Cause cause;
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
bool is_poorer(const PoorerNumber& poorer, double unit, const Times& times) {
  bool differs = false;
  for (const TimeAt& at : times) {
    const double exact = unit * at.theirs, slack = 3e-6 * std::fabs(exact);
    // What f32 made of a whole number may lie just below it: cut, it has lost one or it has not.
    const auto is = [&](double value) { return std::fabs(unit * at.mine - poorer.round(value)) <= slack; };
    if (!is(exact) && !is(exact - slack) && !is(exact + slack)) return false;
    differs = differs || std::fabs(exact - unit * at.mine) > slack;
  }
  return differs;
}

// The index of the step, counted from 0 or 1, up or down, perhaps scaled like a sigma. `last`: of all the run's steps.
std::optional<TimeRule> as_index(const Times& times, int last) {
  for (const double unit : {1.0, 0.001, 1.0 / (last + 1)})
    for (const int first : {0, 1})
      for (const bool down : {false, true}) {
        // n/n, (n-1)/n, .. 1/n are the sigmas of even steps: a schedule, and no index.
        if (down && first == 1 && unit != 1 && unit != 0.001) continue;
        if (!holds(times, [&](const TimeAt& at) {
              const double index = unit * ((down ? last - at.step : at.step) + first);
              return std::fabs(at.mine - index) < 1e-6 * std::max(1.0, at.mine);
            }))
          continue;
        return TimeRule{"timestep.index_as_value",
                        fmt::format(", the index of the step{}{}{}", down ? " counted down" : "",
                                    first == 0 ? "" : " counted from 1", unit == 1 ? "" : ", scaled"),
                        "pass the timestep's value, not its index"};
      }
  return std::nullopt;
}

std::optional<TimeRule> as_thousand(const Times& times, double near) {
  if (holds(times, [&](const TimeAt& at) { return same_number(at.mine, 1000 * at.theirs, near); }))
    return TimeRule{"timestep.scale", ", 1000 times as large: a timestep where a sigma is wanted",
                    "divide by 1000 (num_train_timesteps)"};
  if (holds(times, [&](const TimeAt& at) { return same_number(1000 * at.mine, at.theirs, near); }))
    return TimeRule{"timestep.scale", ", 1000 times too small: a sigma where a timestep is wanted",
                    "multiply by 1000 (num_train_timesteps)"};
  return std::nullopt;
}

// One more or less at every step: whole numbers less one would also pass for numbers just below them, cut.
std::optional<TimeRule> as_offset(const Times& times) {
  const double by = times[0].mine - times[0].theirs;
  for (const double unit : {1.0, 1000.0})
    if (const double whole = std::nearbyint(unit * by);
        times.size() > 1 && whole != 0 && holds(times, [&](const TimeAt& at) {
          return std::fabs(unit * (at.mine - at.theirs) - whole) <= 1e-5 * std::max(1.0, unit * std::fabs(at.theirs));
        }))
      return TimeRule{"timestep.offset", fmt::format(", which is t {:+g} at every step", whole / unit),
                      "pass the timestep as the reference does"};
  return std::nullopt;
}

// The same rule at all steps: a factor, an offset, a power.
std::optional<TimeRule> as_function(const Times& times, double near) {
  if (times.size() < 3) return std::nullopt;
  LineFit points;
  double sum = 0;
  for (const auto& [x, y, step] : times) points.add(x, y), sum += y;
  const auto [a, b] = points.line(1, 0);
  if (a != 0 &&
      holds(times, [&, a = a, b = b](const TimeAt& at) { return same_number(at.mine, a * at.theirs + b, near); })) {
    const bool offset = std::fabs(b) > 2e-3 * std::fabs(sum / points.count());
    return TimeRule{offset ? Cause("timestep.offset") : Cause("timestep.scale"),
                    fmt::format(", which is {} t{}", number(a), offset ? fmt::format(" {:+.5g}", b) : ""),
                    "pass the timestep as the reference does"};
  }
  for (const auto& [power, words] : {std::pair{2.0, "t^2"}, {0.5, "sqrt(t)"}, {-1.0, "1/t"}})
    for (const double unit : {1.0, 1000.0})
      if (holds(times, [&, power = power](const TimeAt& at) {
            return at.theirs > 0 && same_number(at.mine, unit * std::pow(at.theirs / unit, power), near);
          }))
        return TimeRule{"timestep.function", fmt::format(", which is {}", words), "pass t itself"};
  return std::nullopt;
}

// Another step's value: the index is off. All that are wrong must be the reference's of another step, but for one at
// the end, whose neighbour was never used.
std::optional<TimeRule> as_other_step(const Times& times, const Times& wrong, double near) {
  const auto other = [&](const TimeAt& at) -> const TimeAt* {
    for (const TimeAt& of : times)
      if (of.step != at.step && same_number(at.mine, of.theirs, near) && !same_number(at.theirs, of.theirs, near))
        return &of;
    return nullptr;
  };
  const auto found = std::count_if(wrong.begin(), wrong.end(), [&](const TimeAt& at) { return other(at) != nullptr; });
  const TimeAt* first = other(wrong[0]);
  if (!first || static_cast<size_t>(found) + 1 < wrong.size()) return std::nullopt;
  return TimeRule{"timestep.step_index", fmt::format(", which is the reference's at step {}", first->step),
                  fmt::format("the index is off by {}", first->step - wrong[0].step)};
}

// What was told at every step of this pass, the failing step first; the number of the batch that is most wrong.
struct Told {
  Times times;
  int last = 0;              // step of the run
  bool others_right = true;  // every other pass is told the reference's numbers
  bool has_others = false;
};

Told all_times(Case& failing, size_t item, double near) {
  const RunView& run = failing.reference_run();
  const TensorKey& own = run.records[failing.reference_record()].key;
  Told out;
  out.times.push_back({failing.r.v[item], failing.c.v[item], failing.step});
  for (size_t i = 0; i < run.records.size(); ++i) {
    const RecordedTensor& record = run.records[i];
    if (record.key.name != failing.name || record.role != failing.role) continue;
    out.last = std::max(out.last, record.key.step);
    const bool same_pass = record.key.tags == own.tags && record.key.hit == own.hit;
    const size_t partner = failing.partner ? failing.partner(i) : SIZE_MAX;
    const auto worked_back = failing.worked_back.find(i);
    const bool is_known = partner != SIZE_MAX || worked_back != failing.worked_back.end();
    if (i == failing.reference_record() || !is_known || !record.load || out.times.size() > 64) continue;
    const Values &r = failing.load_reference(i),
                 &c = partner == SIZE_MAX ? worked_back->second : failing.load_candidate(partner);
    if (r.v.size() <= item || c.v.size() <= item) continue;
    if (same_pass)
      out.times.push_back({r.v[item], c.v[item], record.key.step});
    else
      out.has_others = true, out.others_right = out.others_right && same_number(c.v[item], r.v[item], near);
  }
  return out;
}

// Where else it is right: in the other pass, at the other steps, in the other items of a batch.
std::string alone(const Case& failing, const Told& told, const Times& wrong, bool subset, size_t item, double near) {
  std::string out;
  const Tags& tags = failing.reference_run().records[failing.reference_record()].key.tags;
  const auto pass = std::find_if(tags.begin(), tags.end(), [](const auto& tag) { return tag.first == "pass"; });
  if (told.has_others && told.others_right)
    out += fmt::format(", in {} alone", pass == tags.end() ? "this pass" : "the pass " + pass->second);
  if (subset) {
    out += wrong.size() == 1 ? ", at step " : ", at steps ";
    for (size_t i = 0; i < std::min<size_t>(wrong.size(), 6); ++i)
      out += fmt::format("{}{}", i ? ", " : "", wrong[i].step);
    out += wrong.size() > 6 ? ", ... alone" : " alone";
  }
  for (size_t i = 0; i < failing.r.v.size(); ++i)
    if (same_number(failing.c.v[i], failing.r.v[i], near)) {
      out += fmt::format(", for item {} of the batch and not for item {}", item, i);
      break;
    }
  return out;
}

}  // namespace

void search_timestep_value(Case& failing, Findings& out) {
  if (failing.r.size() > 8 || failing.r.size() != failing.c.size()) return;
  // Whole numbers are ids and lengths.
  if (!is_floating(failing.reference_run().records[failing.reference_record()].dtype)) return;
  const double near = std::max(2e-3, failing.tolerance);  // in a coarse precision a factor is known no better
  size_t item = 0;
  for (size_t i = 1; i < failing.r.v.size(); ++i)
    if (std::fabs(failing.c.v[i] - failing.r.v[i]) > 1.01 * std::fabs(failing.c.v[item] - failing.r.v[item])) item = i;
  // At one step 0 may be the index, 1 - t, or nothing at all: the other steps decide.
  const Told told = all_times(failing, item, near);
  const Times& times = told.times;
  Times wrong;
  for (const TimeAt& at : times)
    if (!same_number(at.mine, at.theirs, 1e-4)) wrong.push_back(at);
  const double r = times[0].theirs, c = times[0].mine;
  bool subset = false;  // the rule speaks of the wrong steps alone
  const auto rule = [&]() -> std::optional<TimeRule> {
    if (failing.step >= 0 && !same_number(r, c, near))
      if (auto index = as_index(times, told.last)) return index;
    if (auto offset = as_offset(times)) return offset;
    // A poorer number, taken as it is or as a timestep of a thousand: told apart from a factor by all steps together.
    for (const double unit : {1.0, 1000.0, 1 / 1000.0})
      for (const PoorerNumber& poorer : kPoorer)
        if (is_poorer(poorer, unit, times))
          return TimeRule{poorer.cause,
                          fmt::format(", which is {} {}", unit == 1 ? "t" : fmt::format("{:g} t", unit), poorer.words),
                          "keep the timestep a float"};
    if (auto thousand = as_thousand(times, near)) return thousand;
    if (holds(times, [&](const TimeAt& at) { return std::fabs(at.mine - (1 - at.theirs)) < near; }))
      return TimeRule{"timestep.inverted", ", which is 1 - t", "noise runs from 1 to 0 here"};
    if (wrong.empty()) return std::nullopt;
    if (auto other = as_other_step(times, wrong, near)) return other;
    if (auto function = as_function(times, near)) return function;
    if (wrong.size() == times.size()) return std::nullopt;
    subset = true;
    if (auto thousand = as_thousand(wrong, near)) return thousand;
    // One step's index may be many a number by chance.
    return wrong.size() > 1 && failing.step >= 0 ? as_index(wrong, told.last) : std::nullopt;
  };
  std::optional<TimeRule> found = rule();
  if (found) {
    found->words.insert(0, fmt::format("reference: {:.6g}; yours: {:.6g}", r, c));
  } else {
    subset = false, found = as_schedule(times);
  }
  if (!found) return;
  const double complexity = found->cause == "scheduler.sigmas" ? 1.2 : 0.6;
  out.push_back({.cause = found->cause,
                 .explanation = found->words + alone(failing, told, wrong, subset, item, near),
                 .fix = found->fix,
                 .complexity = complexity});
}

}  // namespace lockstep
