// From the decoder's values to pixels: u8 = round(255 * clamp(v * factor + offset)), channels last.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/search/fit.h"
#include "measure/line_fit.h"

namespace lockstep {
namespace {

struct ToPixels {
  double factor = 127.5, offset = 127.5;       // to 0 .. 255
  bool cut = false;                            // towards zero, not to the nearest
  bool wraps_low = false, wraps_high = false;  // not held there: below 0 or beyond 255 it begins again
  double wrong = 1;                            // share of pixels that are off by more than rounding may be
};

double pixel(double v, const ToPixels& p) {
  double x = v * p.factor + p.offset;
  if (!p.wraps_low) x = std::max(x, 0.0);
  if (!p.wraps_high) x = std::min(x, 255.0);
  const double whole = p.cut ? std::trunc(x) : std::nearbyint(x);
  return whole - 256 * std::floor(whole / 256);
}

double wrong_share(const ToPixels& p, const std::vector<float>& v, const std::vector<float>& y) {
  size_t wrong = 0;
  for (size_t i = 0; i < y.size(); ++i) wrong += std::fabs(pixel(v[i], p) - y[i]) > 0.5;
  return static_cast<double>(wrong) / static_cast<double>(std::max<size_t>(1, y.size()));
}

ToPixels fit(const std::vector<float>& v, const std::vector<float>& y) {
  ToPixels best;
  const auto consider = [&](ToPixels p) {
    p.wrong = wrong_share(p, v, y);
    if (p.wrong < best.wrong - 1e-3) best = p;
  };
  for (const bool cut : {false, true})
    for (const bool wraps : {false, true})
      for (const auto& [factor, offset] : {std::pair{127.5, 127.5},
                                           {255.0, 0.0},
                                           {127.5, 0.0},
                                           {255.0, 127.5},
                                           {128.0, 128.0},
                                           {256.0, 0.0},
                                           {-127.5, 127.5},
                                           {127.5, 128.0},
                                           {1.0, 0.0},
                                           {127.0, 127.0}})
        consider({factor, offset, cut, wraps, wraps, 1});
  // Few values may be out of range, and on one side alone: what explains those too is no chance.
  for (const auto& [low, high] : {std::pair{true, false}, {false, true}, {true, true}}) {
    ToPixels p = best;
    p.wraps_low = low, p.wraps_high = high, p.wrong = wrong_share(p, v, y);
    if (p.wrong < 0.3 * best.wrong) best = p;
  }
  if (best.wrong < 0.01) return best;
  LineFit points;  // where nothing is held
  for (size_t i = 0; i < y.size(); ++i)
    if (y[i] > 0 && y[i] < 255) points.add(v[i], y[i]);
  if (points.count() > 32 && points.has_slope(0)) {
    const Line line = points.line(0, 0);
    consider({line.scale, line.offset, false, false, false, 1});
    consider({line.scale, line.offset + 0.5, true, false, false, 1});
  }
  return best;
}

std::string words(const ToPixels& p) {
  return fmt::format("{}({} v {:+.5g}){}", p.cut ? "cut" : "round", number(p.factor), p.offset,
                     p.wraps_low && p.wraps_high ? " modulo 256"
                     : p.wraps_low               ? " held to 255 and below, modulo 256"
                     : p.wraps_high              ? " held to 0 and above, modulo 256"
                                                 : " held to 0 to 255");
}

}  // namespace

void search_picture(Case& failing, Findings& out) {
  const Shape& shape = failing.r.shape;
  if (failing.reference_run().records[failing.reference_record()].dtype != DType::kU8 || shape.size() < 3) return;
  const int64_t channels = shape.back(), width = failing.r.dim(-2), height = failing.r.dim(-3);
  if (channels > 4) return;
  for (const Item& item : failing.items) {
    if (checked_numel(item.shape) != failing.r.size() || item.shape.size() < 3 || item.shape.back() != width ||
        item.shape[item.shape.size() - 2] != height)
      continue;
    // [.., channels, height, width] → [.., height, width, channels]
    const auto last = [&](const Values& x) {
      return permuted(reshaped(x, {x.size() / (channels * height * width), channels, height, width}), {0, 2, 3, 1}).v;
    };
    const std::vector<float> v_r = last(failing.reference_of(item)), v_c = last(failing.candidate_of(item));
    const ToPixels r = fit(v_r, failing.r.v);
    if (r.wrong > 0.01) continue;
    const ToPixels c = fit(v_c, failing.c.v);
    if (c.wrong > 0.02 || c.wrong > 0.3 * wrong_share(r, v_c, failing.c.v)) return;
    const bool same = c.factor == r.factor && c.offset == r.offset;
    const bool wraps = (c.wraps_low && !r.wraps_low) || (c.wraps_high && !r.wraps_high);
    Cause cause = wraps                    ? Cause("precision.clamp_missing")
                  : same && c.cut != r.cut ? Cause("precision.integer")
                  : c.factor == r.factor   ? Cause("affine.offset")
                  : c.offset == r.offset   ? Cause("affine.scale")
                                           : Cause("affine.scale_offset");
    out.push_back({.cause = cause,
                   .explanation = fmt::format("reference: {} of the decoder's values; yours: {}", words(r), words(c)),
                   .fix = "make pixels as the reference does: " + words(r),
                   .residual_reference = r.wrong,
                   .residual = std::min(c.wrong, failing.tolerance),
                   .complexity = 0.8});
    return;
  }
}

}  // namespace lockstep
