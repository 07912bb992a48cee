// Yours is the reference times a factor, plus an offset: one for all, or one per channel or token.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/families/fit.h"

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
  double dd = 0, rr = 0;
  for (int64_t j = 0; j < channels; ++j) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const double x = r.v[static_cast<size_t>(i * channels + j)], y = c.v[static_cast<size_t>(i * channels + j)];
      sx += x, sy += y, sxx += x * x, sxy += x * y;
    }
    const double n = static_cast<double>(rows);
    double a = 1, b = 0;
    if (with_scale && with_offset) {
      const double variance = sxx - sx * sx / n;
      a = variance > 1e-12 * sxx ? (sxy - sx * sy / n) / variance : 1;
      b = (sy - a * sx) / n;
    } else if (with_scale) {
      a = sxx > 0 ? sxy / sxx : 1;
    } else {
      b = (sy - sx) / n;
    }
    out.scale[static_cast<size_t>(j)] = a, out.offset[static_cast<size_t>(j)] = b;
    for (int64_t i = 0; i < rows; ++i) {
      const double x = r.v[static_cast<size_t>(i * channels + j)], y = c.v[static_cast<size_t>(i * channels + j)];
      const double d = y - a * x - b;
      dd += d * d, rr += y * y;
    }
  }
  out.residual = rr > 0 ? std::sqrt(dd / rr) : 0;
  return out;
}

void search_scalar(Case& failing, Findings& out) {
  const Values flat_r = reshaped(failing.r, {failing.r.size(), 1}), flat_c = reshaped(failing.c, {failing.c.size(), 1});
  if (failing.r.size() < 4) return;
  const ChannelFit factor = fit_channels(flat_c, flat_r, true, false);
  if (failing.explains_candidate(factor.residual)) {
    const double a = factor.scale[0];
    const std::string named = constant_name(a, failing.r.shape, failing.tolerance);
    out.push_back({"affine.scale",
                   fmt::format("reference: y; yours: {} * y{}", number(a), named.empty() ? "" : " (= " + named + ")"),
                   named == "-1"
                       ? "a sign is wrong: subtract where the reference adds, or the reverse"
                       : fmt::format("a factor of {} is missing or applied twice", named.empty() ? number(a) : named),
                   "", 0, factor.residual, named.empty() ? 2 : 1.4, 0, Blame::kNone});
    return;
  }
  for (const bool both : {false, true}) {
    const ChannelFit fit = fit_channels(flat_c, flat_r, both, true);
    if (!failing.explains_candidate(fit.residual)) continue;
    out.push_back({both ? "affine.scale_offset" : "affine.offset",
                   both ? fmt::format("reference: y; yours: {} * y + {}", number(fit.scale[0]), number(fit.offset[0]))
                        : fmt::format("reference: y; yours: y + {}", number(fit.offset[0])),
                   "a constant is added, or was left out", "", 0, fit.residual, both ? 2.6 : 2, 0, Blame::kNone});
    return;
  }
}

void search_per_channel(Case& failing, Findings& out) {
  const int axis = channel_axis(failing.name, failing.r.shape);
  const Values r = channels_last(failing.r, axis), c = channels_last(failing.c, axis);
  if (r.rows() < 6 || r.last() < 2) return;
  const ChannelFit offset = fit_channels(c, r, false, true);
  if (failing.explains_candidate(offset.residual)) {
    out.push_back(
        {"affine.channel_offset", "reference: y; yours: y plus a constant of its own for each channel",
         "a bias is missing, added twice, or belongs to another layer; record weights to see which (--weights-a)", "",
         0, offset.residual, 3, 0, Blame::kNone});
    return;
  }
  const ChannelFit scale = fit_channels(c, r, true, false);
  if (failing.explains_candidate(scale.residual)) {
    out.push_back({"affine.channel_scale", "reference: y; yours: y times a factor of its own for each channel",
                   "a weight, gate or scale per channel is missing, applied twice, or belongs to another layer", "", 0,
                   scale.residual, 3.2, 0, Blame::kNone});
    return;
  }
  const ChannelFit both = fit_channels(c, r, true, true);
  if (failing.explains_candidate(both.residual) && r.rows() >= 10)
    out.push_back({"affine.channel_scale_offset", "reference: y; yours: a[channel] * y + b[channel]",
                   "scale and shift per channel differ: modulation, norm weight and bias, or denormalisation", "", 0,
                   both.residual, 4.5, 0, Blame::kNone});
}

void search_per_row(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || failing.r.rows() < 3 || failing.r.last() < 6) return;
  const Values r = permuted(reshaped(failing.r, {failing.r.rows(), failing.r.last()}), {1, 0});
  const Values c = permuted(reshaped(failing.c, {failing.c.rows(), failing.c.last()}), {1, 0});
  const ChannelFit scale = fit_channels(c, r, true, false);
  if (!failing.explains_candidate(scale.residual)) return;
  // A few rows out of many are no formula: the region says which.
  const auto changed = std::count_if(scale.scale.begin(), scale.scale.end(),
                                     [&](double a) { return std::fabs(a - 1) > 10 * failing.tolerance; });
  if (4 * changed < static_cast<int64_t>(scale.scale.size())) return;
  out.push_back({"affine.row_scale", "reference: y; yours: y times a factor of its own for each token",
                 "a norm over the channels is missing, doubled, or divides by another length", "", 0, scale.residual,
                 3.4, 0, Blame::kNone});
}

}  // namespace

void search_affine(Case& failing, Findings& out) {
  if (!std::isfinite(failing.error)) return;
  const size_t before = out.size();
  search_scalar(failing, out);
  if (out.size() > before) return;  // the channels would only repeat it
  search_per_channel(failing, out);
  search_per_row(failing, out);
}

}  // namespace lockstep
