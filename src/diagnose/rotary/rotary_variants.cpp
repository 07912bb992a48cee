#include "diagnose/rotary/rotary_variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "diagnose/case/thresholds.h"
#include "diagnose/rotary/rotary_positions.h"
#include "diagnose/search/fit.h"

namespace lockstep {
namespace {

constexpr size_t kMostAxes = 4;
constexpr size_t kTablesKept = 4;  // two streams of two variants

Angles angles_in(const RotaryTable& table) {
  Angles out{table.rows, table.pairs, {}};
  for (int64_t row = 0; row < table.rows; ++row)
    for (int64_t i = 0; i < table.pairs; ++i) out.a.push_back(table.angle(row, i));
  return out;
}

// One step says a frequency to the rounding of an angle; all tokens together say it better.
double refined(const Angles& x, int64_t column, double frequency, const std::vector<double>& positions) {
  double pp = 0, pl = 0;
  for (int64_t t = 0; t < x.tokens; ++t) {
    const double p = positions[static_cast<size_t>(t)];
    pp += p * p, pl += p * wrapped(x.at(t, column) - frequency * p);
  }
  return pp > 0 ? frequency + pl / pp : frequency;
}

}  // namespace

RotaryVariants::RotaryVariants(const std::vector<const RotaryTable*>& tables) : tables_(tables) {
  if (tables_.empty()) return;
  for (const RotaryTable* table : tables_)
    if (table->rows < 2 || table->pairs < 2 || table->pairs != tables_[0]->pairs) return;
  find_axes();
  read_axes();
  if (axes_.size() > 1) add_orders(), add_grids(), add_countings();
  add_frequencies();
}

void RotaryVariants::find_axes() {
  std::set<int64_t> starts;
  for (const RotaryTable* table : tables_)
    for (const int64_t first : axis_starts(angles_in(*table))) starts.insert(first);
  // More are no axes but columns so slow that rounding moves them.
  if (starts.size() > kMostAxes) starts = {0};
  for (auto at = starts.begin(); at != starts.end(); ++at)
    axes_.push_back({*at, (std::next(at) == starts.end() ? tables_[0]->pairs : *std::next(at)) - *at});
}

void RotaryVariants::read_axes() {
  read_.resize(axes_.size());
  for (size_t stream = 0; stream < tables_.size(); ++stream) {
    const Angles angles = angles_in(*tables_[stream]);
    std::vector<AxisPositions> found;
    if (!read_positions(angles, kAngleLimit, found)) return read_.assign(axes_.size(), {});
    for (size_t a = 0; a < axes_.size(); ++a) {
      std::vector<double> positions(static_cast<size_t>(angles.tokens));
      bool known = false;
      for (const AxisPositions& axis : found) {
        const int64_t offset = axes_[a].first - axis.first;
        if (offset < 0 || offset + axes_[a].count > static_cast<int64_t>(axis.frequencies.size())) continue;
        positions = axis.positions, known = true;
        for (double& p : positions)
          if (std::fabs(p - std::round(p)) < kWholeNumber) p = std::round(p);
        if (!read_[a].frequencies.empty()) continue;
        for (int64_t i = 0; i < axes_[a].count; ++i)
          read_[a].frequencies.push_back(
              refined(angles, axes_[a].first + i, axis.frequencies[static_cast<size_t>(offset + i)], positions));
      }
      // Along an axis of one place all tokens stand at 0, or it cannot be said where.
      if (!known)
        for (int64_t i = 0; i < axes_[a].count; ++i)
          if (std::fabs(angles.at(0, axes_[a].first + i)) > kAngleLimit) return read_.assign(axes_.size(), {});
      read_[a].positions.push_back(std::move(positions));
    }
  }
}

size_t RotaryVariants::axis_of(int64_t pair) const {
  size_t out = 0;
  while (out + 1 < axes_.size() && pair >= axes_[out + 1].first) ++out;
  return out;
}

// Columns of the axes in another order, or axes at each other's places.
void RotaryVariants::add_orders() {
  const char* const fix = "give each axis (frame, height, width) its own columns and positions";
  std::vector<size_t> order(axes_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  while (std::next_permutation(order.begin(), order.end())) {
    std::vector<int64_t> columns;
    std::string words;
    for (const size_t a : order) {
      for (int64_t i = 0; i < axes_[a].count; ++i) columns.push_back(axes_[a].first + i);
      words += fmt::format("{}{}", words.empty() ? "" : ", ", ordinal(a + 1));
    }
    list_.push_back({"rotary.axes_exchanged", fmt::format("columns of the axes in the order {}", words), fix,
                     [this, columns](size_t stream, int64_t row, int64_t pair) {
                       return tables_[stream]->angle(row, columns[static_cast<size_t>(pair)]);
                     }});
  }
  for (size_t a = 0; a < axes_.size(); ++a)
    for (size_t b = a + 1; b < axes_.size(); ++b) {
      if (!is_read(a) || !is_read(b)) continue;
      list_.push_back({"rotary.axes_exchanged",
                       fmt::format("positions of the {} and the {} axis exchanged", ordinal(a + 1), ordinal(b + 1)),
                       fix, [this, a, b](size_t stream, int64_t row, int64_t pair) {
                         const size_t own = axis_of(pair);
                         if (own != a && own != b) return tables_[stream]->angle(row, pair);
                         return read_[own].frequencies[static_cast<size_t>(pair - axes_[own].first)] *
                                read_[own == a ? b : a].positions[stream][static_cast<size_t>(row)];
                       }});
    }
}

// The grid walked down its columns: rows of the table in that order.
void RotaryVariants::add_grids() {
  std::vector<int64_t> columns;  // of each stream's grid; 1: it has none
  for (size_t stream = 0; stream < tables_.size(); ++stream) {
    std::vector<std::set<double>> places;
    for (const Axis& axis : read_)
      if (!axis.positions.empty()) places.emplace_back(axis.positions[stream].begin(), axis.positions[stream].end());
    std::erase_if(places, [](const std::set<double>& of_axis) { return of_axis.size() < 2; });
    const int64_t across = places.empty() ? 0 : static_cast<int64_t>(places.back().size());
    const bool grid = across > 1 && places.size() > 1 && across < tables_[stream]->rows;
    columns.push_back(grid && tables_[stream]->rows % across == 0 ? across : 1);
  }
  if (std::all_of(columns.begin(), columns.end(), [](int64_t n) { return n == 1; })) return;
  list_.push_back({"rotary.axes_exchanged", "the grid's positions column by column",
                   "number the tokens row by row, as they are flattened",
                   [this, columns](size_t stream, int64_t row, int64_t pair) {
                     const int64_t across = columns[stream], down = tables_[stream]->rows / across;
                     return tables_[stream]->angle(across == 1 ? row : row % down * across + row / down, pair);
                   }});
}

// One axis alone counted otherwise.
void RotaryVariants::add_countings() {
  struct Counting {
    Cause cause;
    const char *words, *fix;
    double factor, start;
    bool from_zero, mirrored;
  };
  constexpr Counting kCountings[] = {
      {"rotary.sign", "by the negative angle", "turn every axis the same way", -1, 0, false, false},
      {"rotary.partial", "not rotated", "rotate the part of every axis", 0, 0, false, false},
      {"rotary.offset", "counted from 0", "start each axis where the reference does", 1, 0, true, false},
      {"rotary.sign", "counted backwards", "count positions in the reference's direction", -1, 0, false, true},
      {"rotary.offset", "one place on", "start each axis where the reference does", 1, 1, false, false},
      {"rotary.offset", "one place back", "start each axis where the reference does", 1, -1, false, false},
      {"rotary.factor", "by twice the angle", "count the positions of each axis in steps of one", 2, 0, false, false},
      {"rotary.factor", "by half the angle", "count the positions of each axis in steps of one", 0.5, 0, false, false},
  };
  for (size_t a = 0; a < axes_.size(); ++a) {
    if (!is_read(a)) continue;
    std::vector<double> least, both_ends;
    for (const std::vector<double>& positions : read_[a].positions) {
      const auto [low, high] = std::minmax_element(positions.begin(), positions.end());
      least.push_back(*low), both_ends.push_back(*low + *high);
    }
    for (const Counting& how : kCountings)
      list_.push_back({how.cause, fmt::format("the {} axis {}", ordinal(a + 1), how.words), how.fix,
                       [this, a, how, least, both_ends](size_t stream, int64_t row, int64_t pair) {
                         if (axis_of(pair) != a) return tables_[stream]->angle(row, pair);
                         const double p = read_[a].positions[stream][static_cast<size_t>(row)];
                         return read_[a].frequencies[static_cast<size_t>(pair - axes_[a].first)] *
                                (how.factor * p + how.start - (how.from_zero ? least[stream] : 0) +
                                 (how.mirrored ? both_ends[stream] : 0));
                       }});
  }
}

// Another theta, or its exponents counted otherwise, at the same positions.
void RotaryVariants::add_frequencies() {
  double log_theta = 0;
  for (const Axis& axis : read_) {
    const std::vector<double>& f = axis.frequencies;
    if (f.empty()) continue;
    if (f.size() > 1 && log_theta == 0)
      log_theta = -std::log(std::fabs(f.back() / f.front())) * static_cast<double>(f.size()) /
                  static_cast<double>(f.size() - 1);
    // The first column turns once a position: only then are these theta's powers.
    if (std::fabs(std::fabs(f.front()) - 1) > kAngleLimit) return;
  }
  if (!(log_theta > 0)) return;
  const auto add = [this](const std::string& words, const std::function<double(size_t, int64_t)>& frequency) {
    list_.push_back({"rotary.theta", words, "compute the frequencies as theta^-(i/n), with the reference's theta and n",
                     [this, frequency](size_t stream, int64_t row, int64_t pair) {
                       const size_t a = axis_of(pair);
                       if (!is_read(a)) return tables_[stream]->angle(row, pair);
                       return frequency(a, pair - axes_[a].first) *
                              read_[a].positions[stream][static_cast<size_t>(row)];
                     }});
  };
  for (const double theta : {1e4, 1e6, 1e5, 5e5, 1e3, 2e3, 5e3, 2e4, 256.0, 100.0, 500.0, 1e7}) {
    const double power = std::log(theta) / log_theta;
    if (std::fabs(power - 1) < 1e-3) continue;
    add(fmt::format("theta {:g}", theta), [this, power](size_t a, int64_t i) {
      const double f = read_[a].frequencies[static_cast<size_t>(i)];
      return std::copysign(std::pow(std::fabs(f), power), f);
    });
  }
  if (axes_.size() < 2) return;
  const double all = static_cast<double>(tables_[0]->pairs);
  for (const bool goes_on : {true, false})
    add(goes_on ? "frequencies counted through the whole head" : "the size of the whole head in every axis",
        [this, goes_on, all, log_theta](size_t a, int64_t i) {
          return std::exp(-log_theta * static_cast<double>(i + (goes_on ? axes_[a].first : 0)) / all);
        });
}

const RotaryTable& RotaryVariants::table(size_t variant, size_t stream) const {
  for (const Made& made : made_)
    if (made.variant == variant && made.stream == stream) return *made.table;
  auto out = std::make_shared<RotaryTable>();
  out->rows = tables_[stream]->rows, out->pairs = tables_[stream]->pairs;
  for (int64_t row = 0; row < out->rows; ++row)
    for (int64_t i = 0; i < out->pairs; ++i) {
      const double angle = list_[variant].angle(stream, row, i);
      out->cos.push_back(static_cast<float>(std::cos(angle)));
      out->sin.push_back(static_cast<float>(std::sin(angle)));
    }
  Made made{variant, stream, std::move(out)};
  if (made_.size() < kTablesKept) return *made_.emplace_back(std::move(made)).table;
  next_made_ = (next_made_ + 1) % kTablesKept;
  made_[next_made_] = std::move(made);
  return *made_[next_made_].table;
}

}  // namespace lockstep
