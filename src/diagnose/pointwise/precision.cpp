// The right value in a poorer format: rounded, cut to whole numbers, or held within bounds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/case/family.h"
#include "diagnose/search/number_formats.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

// Small ones are held by every format, so they are asked first.
const NumberFormat kWholeNumbers[] = {
    {"precision.integer", "whole numbers, cut towards zero", [](float x) { return std::trunc(x); }, 1},
    {"precision.integer", "whole numbers, rounded", [](float x) { return std::nearbyint(x); }, 1},
};

void search_rounding(Case& failing, Findings& out) {
  std::vector<NumberFormat> formats(std::begin(kWholeNumbers), std::end(kWholeNumbers));
  formats.insert(formats.end(), number_formats().begin(), number_formats().end());
  for (const NumberFormat& format : formats) {
    int64_t held_c = 0, held_r = 0;
    Residual unexplained;
    for (size_t i = 0; i < failing.c.v.size(); ++i) {
      const float c = failing.c.v[i], r = failing.r.v[i], rounded = format.round(r);
      held_c += format.round(c) == c;
      held_r += rounded == r;
      const double d = static_cast<double>(c) - rounded;
      unexplained.add_squares(d * d, static_cast<double>(r) * r);
    }
    const double residual = unexplained.relative_or(0);
    const int64_t n = failing.c.size();
    if (held_c < n || held_r * 2 > n) continue;  // all of yours are such numbers, most of the reference's are not
    // Either exactly the rounded reference, or rounded on the way: then the error is of the size of the rounding.
    const bool exact = residual < 0.25 * failing.error;
    if (!exact && (format.relative >= 1 || failing.error > 4 * format.relative)) continue;
    out.push_back(
        {.cause = format.cause,
         .explanation = fmt::format("reference: full precision; yours: every value is held in {}{}", format.name,
                                    exact ? ", and is the reference's value so rounded" : ""),
         .fix = fmt::format("remove the cast to {} on the way to this tensor, or make the same cast in the reference",
                            format.name),
         .residual = exact ? residual : std::min(residual, failing.tolerance),
         .complexity = exact ? 0.8 : 1.5});
    return;
  }
}

void search_bounds(Case& failing, Findings& out) {
  const auto [lowest, highest] = std::minmax_element(failing.c.v.begin(), failing.c.v.end());
  const float low = *lowest, high = *highest;
  if (!(low < high)) return;
  int64_t at_low = 0, at_high = 0;
  std::vector<float> held(failing.r.v.size());
  for (size_t i = 0; i < held.size(); ++i) {
    at_low += failing.c.v[i] == low, at_high += failing.c.v[i] == high;
    held[i] = std::clamp(failing.r.v[i], low, high);
  }
  const auto [reference_low, reference_high] = std::minmax_element(failing.r.v.begin(), failing.r.v.end());
  const bool cut_low = *reference_low < low && at_low >= 2, cut_high = *reference_high > high && at_high >= 2;
  if (!cut_low && !cut_high) return;
  const double residual = relative_error(held, failing.r.v) == 0 ? 1 : relative_error(failing.c.v, held);
  if (!failing.explains_candidate(residual)) return;
  const bool half = std::fabs(std::max(std::fabs(low), std::fabs(high)) - 65504) < 64;
  const std::string range = cut_low && cut_high ? fmt::format("{:.6g} to {:.6g}", low, high)
                            : cut_low           ? fmt::format("{:.6g} and above", low)
                                                : fmt::format("{:.6g} and below", high);
  out.push_back({.cause = "precision.saturated",
                 .explanation = fmt::format("reference: not bounded; yours: the same values held to {}{}", range,
                                            half ? " (fp16's largest)" : ""),
                 .fix = half ? "keep this tensor in bf16 or f32: fp16 cannot hold it"
                             : "remove the clamp, or clamp the reference alike",
                 .residual = residual});
}

// Whole numbers of a few bits times a scale, which is the largest value of the whole, of each row or of each channel:
// as an activation is quantised on its way.
void search_scaled_integers(Case& failing, Findings& out) {
  const Values &r = failing.r, &c = failing.c;
  if (r.rank() == 0 || r.size() < 256 || failing.error > 0.3) return;
  const int64_t width = r.last(), rows = r.rows();
  constexpr const char* kSpans[] = {"the whole", "each row", "each channel"};
  const double rr = squared_norm(r.v), most = 0.1 * failing.error;
  for (const int span : {0, 1, 2}) {
    const size_t groups = static_cast<size_t>(span == 0 ? 1 : span == 1 ? rows : width);
    if (r.v.size() / groups < 8) continue;
    const auto group_of = [&](size_t i) {
      return span == 0 ? 0 : span == 1 ? i / static_cast<size_t>(width) : i % static_cast<size_t>(width);
    };
    std::vector<float> low(groups, INFINITY), high(groups, -INFINITY);
    for (size_t i = 0; i < r.v.size(); ++i) {
      const size_t g = group_of(i);
      low[g] = std::min(low[g], r.v[i]), high[g] = std::max(high[g], r.v[i]);
    }
    for (const int bits : {8, 4, 6})
      for (const bool affine : {false, true}) {
        Residual unexplained(rr);
        for (size_t i = 0; i < r.v.size() && !unexplained.is_beyond(most);
             ++i) {  // most are ruled out by the first few
          const size_t g = group_of(i);
          const double base = affine ? low[g] : 0, levels = affine ? (1 << bits) - 1 : (1 << (bits - 1)) - 1;
          const double step =
              (affine ? static_cast<double>(high[g]) - low[g] : std::max(std::fabs(low[g]), std::fabs(high[g]))) /
              levels;
          unexplained.add_off(c.v[i] - (step > 0 ? base + step * std::nearbyint((r.v[i] - base) / step) : base));
        }
        const double residual = unexplained.relative();
        if (residual > 0.1 * failing.error) continue;
        out.push_back({.cause = "precision.integer",
                       .explanation = fmt::format(
                           "reference: full precision; yours: the same values in {} bits, one scale for {}{}", bits,
                           kSpans[span], affine ? ", affine" : ""),
                       .fix = "do not quantise this tensor, or quantise the reference alike",
                       .residual = residual});
        return;
      }
  }
}

// Multiples of one step: a picture of fewer bits, values that were pixels in between.
void search_steps(Case& failing, Findings& out) {
  if (failing.r.size() < 64 || failing.error > 0.5) return;
  const double rr = squared_norm(failing.r.v), most = 0.05 * failing.error;
  for (const double step :
       {1 / 255.0, 1 / 127.5, 1 / 127.0, 1 / 128.0, 1 / 256.0, 0.001, 0.01, 0.1, 2.0, 4.0, 8.0, 16.0, 32.0})
    for (const bool cut : {false, true}) {
      Residual unexplained(rr);
      int64_t held = 0;
      for (size_t i = 0; i < failing.r.v.size() && !unexplained.is_beyond(most); ++i) {
        const double r = failing.r.v[i], at = cut ? std::floor(r / step + 1e-6) : std::nearbyint(r / step);
        held += std::fabs(r - step * std::nearbyint(r / step)) < 1e-4 * step;
        unexplained.add_off(failing.c.v[i] - step * at);
      }
      const double residual = unexplained.relative();
      if (residual > 0.05 * failing.error || held * 10 > failing.r.size() * 9) continue;
      out.push_back(
          {.cause = "precision.integer",
           .explanation = fmt::format("reference: full precision; yours: the same values {} multiples of {:.4g}",
                                      cut ? "cut to" : "rounded to", step),
           .fix = "do not go through whole numbers on the way to this tensor",
           .residual = residual});
      return;
    }
}

// The reference is held to bounds, yours runs past them.
void search_missing_bounds(Case& failing, Findings& out) {
  const auto [lowest, highest] = std::minmax_element(failing.r.v.begin(), failing.r.v.end());
  int64_t at_low = 0, at_high = 0;
  for (const float value : failing.r.v) at_low += value == *lowest, at_high += value == *highest;
  if (!(*lowest < *highest) || at_low + at_high < 4) return;
  std::vector<float> held(failing.c.v.size());
  for (size_t i = 0; i < held.size(); ++i) held[i] = std::clamp(failing.c.v[i], *lowest, *highest);
  const double residual = relative_error(held, failing.r.v);
  if (!failing.explains_candidate(residual)) return;
  out.push_back({.cause = "precision.clamp_missing",
                 .explanation = fmt::format("reference: held to {:.6g} to {:.6g}; yours: the same values, not held",
                                            *lowest, *highest),
                 .fix = "clamp the result as the reference does",
                 .residual = residual});
}

}  // namespace

void search_precision(Case& failing, Findings& out) {
  if (!std::isfinite(failing.error)) return;
  search_rounding(failing, out);
  search_bounds(failing, out);
  search_missing_bounds(failing, out);
  const size_t before = out.size();
  search_scaled_integers(failing, out);
  if (out.size() == before) search_steps(failing, out);
}

}  // namespace lockstep
