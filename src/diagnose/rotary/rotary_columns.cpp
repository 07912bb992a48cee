#include "diagnose/rotary/rotary_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace lockstep {
namespace {

// angle = frequency * position + start, at every token
struct ColumnFit {
  double frequency = 0, start = 0, misfit = INFINITY;
};

// Whole positions give the frequency up to whole turns; one that moves by one step says it exactly.
ColumnFit fit_column(const Angles& x, int64_t column, const std::vector<double>& positions) {
  ColumnFit out;
  int64_t from = -1;
  for (int64_t t = 1; t < x.tokens && from < 0; ++t) {
    const double step = positions[static_cast<size_t>(t)] - positions[static_cast<size_t>(t - 1)];
    if (std::fabs(std::fabs(step) - 1) < 0.02)
      from = t - 1, out.frequency = wrapped(x.at(t, column) - x.at(t - 1, column)) / step;
  }
  if (from < 0) return out;
  // Twice: what is left is made small by the first estimate, and the estimate better by what is left.
  for (int pass = 0; pass < 3; ++pass) {
    double sp = 0, sl = 0, spp = 0, spl = 0;
    const double n = static_cast<double>(x.tokens);
    if (pass == 0) out.start = wrapped(x.at(from, column) - out.frequency * positions[static_cast<size_t>(from)]);
    double squares = 0;
    for (int64_t t = 0; t < x.tokens; ++t) {
      const double p = positions[static_cast<size_t>(t)],
                   left = wrapped(x.at(t, column) - out.frequency * p - out.start);
      sp += p, sl += left, spp += p * p, spl += p * left, squares += left * left;
    }
    out.misfit = std::sqrt(squares / n);
    const double below = n * spp - sp * sp;
    if (pass == 2 || below <= 0 || out.misfit > 0.3) break;
    const double slope = (n * spl - sp * sl) / below;
    out.frequency += slope, out.start += (sl - slope * sp) / n;
  }
  return out;
}

// Formulas for the frequency of column i of n, the first of which is column `first` of `all`.
struct Series {
  const char* words;
  double (*exponent)(double i, double n, double first, double all);
};
constexpr Series kSeries[] = {
    {"theta^-(i/all), counted through the whole head and then cut into axes",
     [](double i, double, double first, double all) { return (first + i) / all; }},
    {"theta^-(i/all), with the size of the whole head in every axis",
     [](double i, double, double, double all) { return i / all; }},
    {"theta^-(i/(n-1)), with the last one reaching theta",
     [](double i, double n, double, double) { return i / std::max(1.0, n - 1); }},
    {"theta^-(2i/n), the exponent doubled", [](double i, double n, double, double) { return 2 * i / n; }},
    {"theta^-(i/2n), the exponent halved", [](double i, double n, double, double) { return i / (2 * n); }},
    {"theta^-((i+1)/n), one step on", [](double i, double n, double, double) { return (i + 1) / n; }},
    {"theta^-((n-1-i)/n), in reverse order", [](double i, double n, double, double) { return (n - 1 - i) / n; }},
    {"theta^-((i+1/2)/n), half a step on", [](double i, double n, double, double) { return (i + 0.5) / n; }},
    {"theta^(i/n), inverted", [](double i, double n, double, double) { return -i / n; }},
};

struct AxisColumns {
  double first = 0, count = 0;
  std::vector<double> theirs, yours;  // frequencies
};

// log theta of frequencies theta^-(i/n)
double log_theta(const std::vector<double>& f) {
  const size_t last = f.size() - 1;
  return last == 0 ? 0
                   : -std::log(std::fabs(f[last] / f[0])) * static_cast<double>(f.size()) / static_cast<double>(last);
}

std::string series_words(const std::vector<AxisColumns>& axes, double all) {
  const auto fits = [&](const std::function<double(const AxisColumns&, double)>& exponent) {
    for (const AxisColumns& axis : axes)
      for (size_t i = 0; i < axis.yours.size(); ++i) {
        const double expected = std::exp(-log_theta(axis.theirs) * exponent(axis, static_cast<double>(i)));
        if (std::fabs(wrapped(axis.yours[i] - expected)) > 2e-3 + 0.01 * std::min(1.0, expected)) return false;
      }
    return true;
  };
  for (const Series& series : kSeries)
    if (fits([&](const AxisColumns& axis, double i) { return series.exponent(i, axis.count, axis.first, all); }))
      return series.words;
  return "";
}

}  // namespace

PositionFinding compare_columns(const Angles& c, const Angles& r, double limit) {
  std::vector<AxisPositions> axes;
  if (!read_positions(r, std::max(limit, 1e-4), axes)) return {};
  PositionFinding out;
  std::vector<AxisColumns> columns;
  for (const AxisPositions& axis : axes)
    columns.push_back({static_cast<double>(axis.first), static_cast<double>(axis.frequencies.size()), {}, {}});
  bool other_axis = false, other_frequency = false;
  for (int64_t i = 0; i < r.pairs; ++i) {
    size_t own = axes.size();  // no token moves along the axis of this column
    for (size_t a = 0; a < axes.size(); ++a)
      if (i >= axes[a].first && i < axes[a].first + static_cast<int64_t>(axes[a].frequencies.size())) own = a;
    double off = 0;
    for (int64_t t = 0; t < r.tokens; ++t) off = std::max(off, std::fabs(wrapped(c.at(t, i) - r.at(t, i))));
    const bool same = off < limit;
    if (own < axes.size()) {
      const ColumnFit fit = fit_column(c, i, axes[own].positions);
      const double theirs = axes[own].frequencies[static_cast<size_t>(i - axes[own].first)];
      // Positions that start elsewhere are another matter: see compare_positions.
      if (same || (fit.misfit < limit && std::fabs(wrapped(fit.start)) < 5 * limit)) {
        columns[own].theirs.push_back(theirs), columns[own].yours.push_back(same ? theirs : fit.frequency);
        other_frequency = other_frequency || !same;
        out.misfit = std::max(out.misfit, same ? 0 : fit.misfit);
        continue;
      }
    } else if (same) {
      continue;
    }
    const bool found = std::any_of(axes.begin(), axes.end(), [&](const AxisPositions& axis) {
      const ColumnFit fit = fit_column(c, i, axis.positions);
      return fit.misfit < limit && std::fabs(wrapped(fit.start)) < 5 * limit;
    });
    bool still = true;
    for (int64_t t = 1; t < r.tokens; ++t) still = still && std::fabs(wrapped(c.at(t, i) - c.at(0, i))) < limit;
    if (!found && !still) return {};
    other_axis = true;
  }
  if (other_axis) {
    out.cause = "rotary.axes_exchanged", out.yours = "columns of one axis turned by the positions of another";
    out.fix = "give each axis (frame, height, width) its own columns, as many as in the reference";
    return out;
  }
  if (!other_frequency) return {};
  bool factors = true, stands = false;
  double factor = 1;
  for (const AxisColumns& axis : columns) {
    const auto ratio = [&](size_t i) { return axis.yours[i] / axis.theirs[i]; };
    for (size_t i = 0; i < axis.yours.size(); ++i) {
      // One factor, in all columns or in some.
      if (std::fabs(ratio(i) - 1) < 5e-3) continue;
      factors = factors && (factor == 1 || std::fabs(ratio(i) / factor - 1) < 5e-3);
      factor = ratio(i);
    }
    // The slowest columns are alike whatever the positions are.
    size_t changed = 0, still = 0;
    for (size_t i = 0; i < axis.yours.size(); ++i)
      if (axis.yours[i] != axis.theirs[i]) ++changed, still += std::fabs(axis.yours[i]) < 1e-6 ? 1 : 0;
    stands = stands || (changed > 0 && still == changed);
  }
  if (stands) {
    out.cause = "rotary.positions", out.yours = "all tokens at one place of an axis along which they move";
    out.fix = "number the tokens on each axis as the reference does";
  } else if (factors) {
    out.cause = std::fabs(factor + 1) < 5e-3 ? Cause("rotary.sign") : Cause("rotary.factor");
    out.yours = fmt::format("{:.4g} a on an axis", factor),
    out.fix = "count the positions of each axis in steps of one";
  } else {
    const std::string words = series_words(columns, static_cast<double>(r.pairs));
    out.cause = "rotary.theta";
    out.yours = words.empty() ? "other frequencies at the same positions" : "frequencies " + words;
    out.fix = "compute the frequencies as theta^-(i/n), for each axis with its own n, and with the reference's theta";
  }
  return out;
}

}  // namespace lockstep
