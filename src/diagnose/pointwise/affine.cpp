// Yours is the reference times a factor, plus an offset: one for all, or one per channel or token.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/pointwise/vector_origin.h"
#include "diagnose/search/fit.h"
#include "diagnose/search/report.h"
#include "measure/line_fit.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

struct ChannelFit {
  std::vector<double> scale, offset;
  double residual = 0;
};

// Least squares in each channel; `with` chooses factor, offset or both.
ChannelFit fit_channels(const Values& c, const Values& r, bool with_scale, bool with_offset) {
  const int64_t rows = r.rows(), channels = r.last();
  ChannelFit out{std::vector<double>(static_cast<size_t>(channels), 1),
                 std::vector<double>(static_cast<size_t>(channels), 0), 0};
  Residual unexplained;
  for (int64_t j = 0; j < channels; ++j) {
    const auto at = [&](int64_t i) { return static_cast<size_t>(i * channels + j); };
    LineFit points;
    for (int64_t i = 0; i < rows; ++i) points.add(r.v[at(i)], c.v[at(i)]);
    const Line line = with_scale && with_offset ? points.line(1)
                      : with_scale              ? Line{points.factor(1), 0}
                                                : Line{1, points.offset()};
    out.scale[static_cast<size_t>(j)] = line.scale, out.offset[static_cast<size_t>(j)] = line.offset;
    for (int64_t i = 0; i < rows; ++i) unexplained.add(line.at(r.v[at(i)]), c.v[at(i)]);
  }
  out.residual = unexplained.relative_or(0);
  return out;
}

void add_factor(const Case& failing, double a, double residual, const Report& report) {
  if (number(a) == "1") return;  // a difference so small is no factor that could be told
  const std::string named = constant_name(a, failing.r.shape, failing.tolerance);
  report.add(
      {"affine.scale",
       named == "-1" ? "a sign is wrong: subtract where the reference adds, or the reverse"
                     : fmt::format("a factor of {} is missing or applied twice", named.empty() ? number(a) : named)},
      fmt::format("{} * y{}", number(a), named.empty() ? "" : " (= " + named + ")"), residual, named.empty() ? 2 : 1.4);
}

void search_scalar(Case& failing, const Report& report) {
  const Values flat_r = reshaped(failing.r, {failing.r.size(), 1}), flat_c = reshaped(failing.c, {failing.c.size(), 1});
  if (failing.r.size() < 4) return;
  const ChannelFit factor = fit_channels(flat_c, flat_r, true, false),
                   offset = fit_channels(flat_c, flat_r, false, true), both = fit_channels(flat_c, flat_r, true, true);
  // A large error lets a factor alone seem enough: not where an offset beside it leaves next to nothing.
  const bool enough = factor.residual <= 2 * failing.tolerance || both.residual > 0.2 * factor.residual;
  if (failing.explains_candidate(factor.residual) && enough)
    add_factor(failing, factor.scale[0], factor.residual, report);
  else if (failing.explains_candidate(offset.residual))
    report.add({"affine.offset"}, "y + " + number(offset.offset[0]), offset.residual, 2);
  else if (failing.explains_candidate(both.residual))
    report.add({"affine.scale_offset", "a constant is added, or was left out"},
               fmt::format("{} * y + {}", number(both.scale[0]), number(both.offset[0])), both.residual, 2.6);
}

// Whole numbers in their format: rounding alone moves them by up to half.
double rounding_of(const Values& x) {
  return std::all_of(x.v.begin(), x.v.end(), [](float v) { return v == std::nearbyint(v); }) ? 0.5 : 0;
}

// The same between bounds that one side or both run into, as pictures do: fitted where neither is at a bound.
void search_bounded(Case& failing, const Report& report) {
  constexpr int64_t kFewest = 64;
  const auto [low_r, high_r] = std::minmax_element(failing.r.v.begin(), failing.r.v.end());
  const auto [low_c, high_c] = std::minmax_element(failing.c.v.begin(), failing.c.v.end());
  std::vector<float> r, c;
  int64_t at_bound = 0;
  for (size_t i = 0; i < failing.r.v.size(); ++i) {
    const float x = failing.r.v[i], y = failing.c.v[i];
    if (x == *low_r || x == *high_r) continue;  // what it was before it was held is not known
    if (y == *low_c || y == *high_c)
      ++at_bound;
    else
      r.push_back(x), c.push_back(y);
  }
  const int64_t count = static_cast<int64_t>(r.size());
  if (at_bound < 4 || count < kFewest || count * 20 < failing.r.size()) return;
  const ChannelFit fit = fit_channels({{count, 1}, c}, {{count, 1}, r}, true, true);
  const double a = fit.scale[0], b = fit.offset[0];
  const double slack = (1 + std::fabs(a)) * std::max(rounding_of(failing.c), rounding_of(failing.r));
  Residual unexplained;
  for (size_t i = 0; i < failing.r.v.size(); ++i) {
    const double x = failing.r.v[i], y = failing.c.v[i];
    if (x == *low_r || x == *high_r) continue;
    const double left = std::max(0.0, std::fabs(y - std::clamp<double>(a * x + b, *low_c, *high_c)) - slack);
    unexplained.add_squares(left * left, y * y);
  }
  const double residual = unexplained.relative();
  if (!failing.explains_candidate(residual)) return;
  const bool same_factor = std::fabs(a - 1) < 0.01, no_offset = std::fabs(b) < std::max(1.5 * slack, 1e-3 * *high_c);
  if (same_factor && no_offset) return;  // bounds alone: precision says so
  report.add({same_factor ? Cause("affine.offset")
              : no_offset ? Cause("affine.scale")
                          : Cause("affine.scale_offset"),
              "scale and offset before the values are held to their range differ"},
             fmt::format("{} * y {:+.4g}, held to {:g} to {:g}", number(a), b, *low_c, *high_c), residual, 2.4);
}

// Which vectors make it, where known ones do: that comes before the bare effect.
void add_origin(Case& failing, const ChannelFit& fit, bool has_factor, bool has_offset, Findings& out) {
  if (auto origin = origin_of(failing, {fit.scale, fit.offset, has_factor, has_offset, fit.residual}))
    out.push_back(std::move(*origin));
}

void search_per_channel(Case& failing, const Report& report, Findings& out) {
  const int axis = channel_axis(failing.name, failing.r.shape);
  const Values r = channels_last(failing.r, axis), c = channels_last(failing.c, axis);
  if (r.rows() < 6 || r.last() < 2) return;
  const ChannelFit offset = fit_channels(c, r, false, true);
  if (failing.explains_candidate(offset.residual)) {
    add_origin(failing, offset, false, true, out);
    report.add(
        {"affine.channel_offset",
         "a bias is missing, added twice, or belongs to another layer; record weights to see which (--weights-a)"},
        "y plus a constant of its own for each channel", offset.residual, 3);
    return;
  }
  const ChannelFit scale = fit_channels(c, r, true, false);
  if (failing.explains_candidate(scale.residual)) {
    add_origin(failing, scale, true, false, out);
    report.add({"affine.channel_scale",
                "a weight, gate or scale per channel is missing, applied twice, or belongs to another layer"},
               "y times a factor of its own for each channel", scale.residual, 3.2);
    return;
  }
  const ChannelFit both = fit_channels(c, r, true, true);
  if (!failing.explains_candidate(both.residual) || r.rows() < 10) return;
  add_origin(failing, both, true, true, out);
  report.add({"affine.channel_scale_offset",
              "scale and shift per channel differ: modulation, norm weight and bias, or denormalisation"},
             "a[channel] * y + b[channel]", both.residual, 4.5);
}

void search_per_row(Case& failing, const Report& report) {
  if (failing.r.rank() < 2 || failing.r.rows() < 3 || failing.r.last() < 6) return;
  const Values r = permuted(reshaped(failing.r, {failing.r.rows(), failing.r.last()}), {1, 0});
  const Values c = permuted(reshaped(failing.c, {failing.c.rows(), failing.c.last()}), {1, 0});
  const ChannelFit scale = fit_channels(c, r, true, false);
  if (!failing.explains_candidate(scale.residual)) return;
  // A few rows out of many are no formula: the region says which.
  const auto changed = std::count_if(scale.scale.begin(), scale.scale.end(),
                                     [&](double a) { return std::fabs(a - 1) > 10 * failing.tolerance; });
  if (4 * changed < static_cast<int64_t>(scale.scale.size())) return;
  report.add({"affine.row_scale", "a norm over the channels is missing, doubled, or divides by another length"},
             "y times a factor of its own for each token", scale.residual, 3.4);
}

}  // namespace

void search_affine(Case& failing, Findings& out) {
  if (!std::isfinite(failing.error)) return;
  const Report report("y", 0, out);
  const size_t before = out.size();
  search_scalar(failing, report);
  if (out.size() == before) search_bounded(failing, report);
  if (out.size() > before) return;  // the channels would only repeat it
  search_per_channel(failing, report, out);
  search_per_row(failing, report);
}

}  // namespace lockstep
