#include "diagnose/rotary/rotary_positions.h"
#include "diagnose/case/thresholds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace lockstep {
namespace {

using Positions = std::vector<double>;  // one a token

struct Axis {
  int64_t first = 0, count = 0;     // columns
  std::vector<double> frequencies;  // empty: no token moves along it
};

// From one token to the next the position moves by one first: that angle is the column's frequency.
double frequency(const Angles& x, int64_t column) {
  for (int64_t t = 1; t < x.tokens; ++t) {
    const double step = wrapped(x.at(t, column) - x.at(t - 1, column));
    if (std::fabs(step) > 1e-6) return step;
  }
  return 0;
}

// Positions of an axis: from a slow column, which has not wrapped, made exact by the faster ones. Nothing when the
// columns do not agree on one.
bool positions_on(const Angles& x, const Axis& axis, double limit, Positions& out, double& misfit) {
  std::vector<size_t> order;
  for (size_t i = 0; i < axis.frequencies.size(); ++i)
    if (std::fabs(axis.frequencies[i]) > 1e-4) order.push_back(i);
  if (order.empty()) return false;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::fabs(axis.frequencies[a]) < std::fabs(axis.frequencies[b]); });
  out.assign(static_cast<size_t>(x.tokens), 0);
  double sum = 0;
  for (int64_t t = 0; t < x.tokens; ++t) {
    double position = 0;
    for (const size_t i : order) {
      const double f = axis.frequencies[i], turned = x.at(t, axis.first + static_cast<int64_t>(i));
      position += wrapped(turned - position * f) / f;
    }
    out[static_cast<size_t>(t)] = position;
    for (size_t i = 0; i < axis.frequencies.size(); ++i) {
      const double left = wrapped(x.at(t, axis.first + static_cast<int64_t>(i)) - position * axis.frequencies[i]);
      if (std::fabs(left) > 10 * limit) return false;
      sum += left * left;
    }
  }
  misfit = std::max(misfit, std::sqrt(sum / static_cast<double>(x.tokens * axis.count)));
  return misfit <= limit;
}

// Neighbouring columns in which the same tokens move.
std::vector<Axis> axes_of(const Angles& x) {
  std::vector<Axis> out;
  std::vector<bool> before;
  for (int64_t i = 0; i < x.pairs; ++i) {
    std::vector<bool> moves;
    const double f = frequency(x, i);
    for (int64_t t = 1; t < x.tokens; ++t) moves.push_back(std::fabs(wrapped(x.at(t, i) - x.at(t - 1, i))) > 1e-6);
    // A faster column after a slower one begins a new axis: frequencies fall along each.
    const bool faster = !out.empty() && !out.back().frequencies.empty() &&
                        std::fabs(f) > 1.001 * std::fabs(out.back().frequencies.back());
    if (out.empty() || moves != before || faster) out.push_back({i, 0, {}});
    out.back().count += 1;
    if (f != 0) out.back().frequencies.push_back(f);
    before = std::move(moves);
  }
  return out;
}

// A part of the axis moved by a constant, as far as it may be: slow columns have then turned too.
struct MovedPart {
  Positions positions;
  double misfit = 0;
  int64_t by = 0;  // 0: so far that it cannot be said
};

// The whole number that all columns agree on; 0 when there is none.
int64_t steps_of(const std::vector<double>& turns, const std::vector<double>& frequencies, double limit) {
  constexpr int64_t kFarthest = int64_t{1} << 17;
  int64_t out = 0;
  double least = INFINITY;
  for (int64_t n = -kFarthest; n <= kFarthest; ++n) {
    const double allowed = limit + kOfFrequency * static_cast<double>(std::llabs(n));
    double worst = 0;
    for (size_t i = 0; i < turns.size() && worst <= std::min(allowed, least); ++i)
      worst = std::max(worst, std::fabs(wrapped(turns[i] - static_cast<double>(n) * frequencies[i])));
    if (worst <= allowed && worst < least) least = worst, out = n;
  }
  return out;
}

std::optional<MovedPart> moved_part(const Angles& c, const Angles& r, const Axis& axis, const Positions& at_r,
                                    double limit) {
  std::vector<int64_t> moved;
  std::vector<double> turns(axis.frequencies.size());
  std::set<int64_t> moved_places, other_places;
  MovedPart out{at_r, 0, 0};
  for (int64_t t = 0; t < r.tokens; ++t) {
    double off = 0;
    for (size_t i = 0; i < turns.size(); ++i) {
      const int64_t column = axis.first + static_cast<int64_t>(i);
      const double turn = wrapped(c.at(t, column) - r.at(t, column));
      off = std::max(off, std::fabs(turn));
      if (moved.empty()) turns[i] = turn;
    }
    (off > limit ? moved_places : other_places).insert(std::llround(at_r[static_cast<size_t>(t)]));
    if (off > limit) moved.push_back(t);
  }
  if (moved_places.empty() || other_places.empty()) return std::nullopt;
  for (const int64_t place : moved_places)
    if (other_places.contains(place)) return std::nullopt;
  for (const int64_t t : moved)
    for (size_t i = 0; i < turns.size(); ++i) {
      const int64_t column = axis.first + static_cast<int64_t>(i);
      out.misfit = std::max(out.misfit, std::fabs(wrapped(c.at(t, column) - r.at(t, column) - turns[i])));
    }
  if (out.misfit > limit) return std::nullopt;
  out.by = steps_of(turns, axis.frequencies, limit);
  // One place alone moves by some constant whatever was done to it: there it must be a number of steps.
  constexpr size_t kColumnsThatTell = 3;
  if (moved_places.size() < 2 && (out.by == 0 || turns.size() < kColumnsThatTell)) return std::nullopt;
  constexpr int64_t kAnywhere = int64_t{1} << 20;
  for (const int64_t t : moved)
    out.positions[static_cast<size_t>(t)] += static_cast<double>(out.by ? out.by : kAnywhere);
  return out;
}

bool all_near(const Positions& a, const Positions& b) {
  for (size_t t = 0; t < a.size(); ++t)
    if (std::fabs(a[t] - b[t]) > kWholeNumber) return false;
  return true;
}

// c = scale * r + start at every token, if so.
bool is_line(const Positions& c, const Positions& r, double& scale, double& start) {
  const auto [low, high] = std::minmax_element(r.begin(), r.end());
  if (*high - *low < 0.5) return false;
  const auto at = [&](Positions::const_iterator where) { return c[static_cast<size_t>(where - r.begin())]; };
  scale = (at(high) - at(low)) / (*high - *low), start = at(low) - scale * *low;
  for (size_t t = 0; t < c.size(); ++t)
    if (std::fabs(c[t] - scale * r[t] - start) > kWholeNumber) return false;
  return true;
}

std::set<int64_t> places(const Positions& x) {
  std::set<int64_t> out;
  for (const double value : x) out.insert(std::llround(value));
  return out;
}

// In how many tokens each place is taken: alike for the same axis walked in another order.
std::multiset<size_t> visits(const Positions& x) {
  std::map<int64_t, size_t> count;
  for (const double value : x) ++count[std::llround(value)];
  std::multiset<size_t> out;
  for (const auto& [place, times] : count) out.insert(times);
  return out;
}

// Where the reference's tokens share a place on the axis, yours do: the places of this axis are numbered otherwise.
bool is_renumbered(const Positions& c, const Positions& r) {
  std::map<int64_t, double> to;
  for (size_t t = 0; t < r.size(); ++t)
    if (std::fabs(to.emplace(std::llround(r[t]), c[t]).first->second - c[t]) > kWholeNumber) return false;
  return true;
}

// Yours walks another grid, or this one in another order: axes change places.
bool axes_changed_places(const std::vector<Positions>& c, const std::vector<Positions>& r) {
  for (size_t a = 0; a < c.size(); ++a) {
    const bool found = std::any_of(r.begin(), r.end(), [&](const Positions& other) {
      return all_near(c[a], other) || (places(c[a]).size() == places(other).size() && visits(c[a]) == visits(other));
    });
    if (!found) return false;
  }
  return true;
}

}  // namespace

Angles angles_of(const Values& x) {
  Angles out{x.size() / 2 / x.dim(-2), x.dim(-2), {}};
  for (size_t i = 0; i + 1 < x.v.size(); i += 2) out.a.push_back(std::atan2(x.v[i + 1], x.v[i]));
  return out;
}

double wrapped(double angle) {
  return std::remainder(angle, 2 * M_PI);
}

bool read_positions(const Angles& table, double limit, std::vector<AxisPositions>& out) {
  for (const Axis& axis : axes_of(table)) {
    if (axis.frequencies.empty()) continue;  // no token moves along it
    AxisPositions found{axis.first, axis.frequencies, {}};
    double misfit = 0;
    if (static_cast<int64_t>(axis.frequencies.size()) != axis.count ||
        !positions_on(table, axis, limit, found.positions, misfit))
      return false;
    out.push_back(std::move(found));
  }
  return !out.empty();
}

std::vector<int64_t> axis_starts(const Angles& table) {
  std::vector<int64_t> out;
  for (const Axis& axis : axes_of(table)) out.push_back(axis.first);
  return out;
}

PositionFinding compare_positions(const Angles& c, const Angles& r, double limit) {
  PositionFinding out;
  std::vector<Positions> in_r, in_c;
  std::optional<int64_t> moved_by;
  for (const Axis& axis : axes_of(r)) {
    if (axis.frequencies.empty()) {
      // An axis along which the reference does not move: yours must not either.
      for (int64_t t = 0; t < r.tokens; ++t)
        for (int64_t i = axis.first; i < axis.first + axis.count; ++i)
          if (std::fabs(wrapped(c.at(t, i) - r.at(t, i))) > limit) return {};
      continue;
    }
    Positions at_r, at_c;
    double ignored = 0;
    if (!positions_on(r, axis, limit, at_r, ignored)) return {};
    double misfit = out.misfit;
    if (positions_on(c, axis, limit, at_c, misfit)) {
      out.misfit = misfit;
    } else if (auto part = moved_part(c, r, axis, at_r, limit)) {
      moved_by = part->by, at_c = std::move(part->positions), out.misfit = std::max(out.misfit, part->misfit);
    } else {
      return {};
    }
    in_r.push_back(std::move(at_r)), in_c.push_back(std::move(at_c));
  }
  if (in_r.empty()) return {};
  bool lines = true, offset = false, mirrored = false;
  double factor = 1;
  for (size_t a = 0; a < in_r.size() && lines; ++a) {
    double scale = 1, start = 0;
    lines = is_line(in_c[a], in_r[a], scale, start);
    if (std::fabs(scale + 1) < 1e-3)
      mirrored = true;
    else if (std::fabs(scale - 1) > 1e-3)
      factor = scale;
    else if (std::fabs(start) > kWholeNumber)
      offset = true;
  }
  bool renumbered = true;
  for (size_t a = 0; a < in_r.size(); ++a) renumbered = renumbered && is_renumbered(in_c[a], in_r[a]);
  if (lines && factor != 1)
    out.cause = "rotary.factor", out.yours = fmt::format("positions {:.4g} times as far apart on an axis", factor),
    out.fix = "count the positions of each axis in steps of one";
  else if (lines && mirrored)
    out.cause = "rotary.sign", out.yours = "an axis counted backwards",
    out.fix = "count positions in the reference's direction";
  else if (lines && offset)
    out.cause = "rotary.offset", out.yours = "positions of an axis moved by a constant",
    out.fix = "start each axis where the reference does: check the centring of the grid";
  else if (in_r.size() > 1 && !renumbered && axes_changed_places(in_c, in_r))
    out.cause = "rotary.axes_exchanged",
    out.yours = fmt::format("a grid of {} places on an axis that has {} in the reference", places(in_c[0]).size(),
                            places(in_r[0]).size()),
    out.fix = "give height and width in the reference's order, and walk the grid row by row";
  else if (moved_by)
    out.cause = "rotary.positions",
    out.yours = *moved_by ? fmt::format("a part of the places of an axis {} on", *moved_by)
                          : "a part of the places of an axis moved by a constant",
    out.fix = "look every position up in its own row: a negative one is no place counted from the end of the table";
  else
    out.cause = "rotary.positions", out.yours = "the same frequencies at other positions",
    out.fix = "number the tokens on each axis as the reference does";
  return out;
}

}  // namespace lockstep
