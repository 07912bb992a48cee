// From the decoder's values to pixels: u8 = round(255 * clamp(v * factor + offset)), channels last.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/search/edits.h"
#include "diagnose/search/fit.h"
#include "measure/line_fit.h"

namespace lockstep {
namespace {

struct ToPixels {
  double factor = 127.5, offset = 127.5;       // to 0 .. 255
  bool cut = false;                            // towards zero, not to the nearest
  bool wraps_low = false, wraps_high = false;  // not held there: below 0 or beyond 255 it begins again
};
constexpr double kLevelsOfReference = 0.1, kLevelsOfCandidate = 0.15;  // a hundredth of the pixels off by one, or two

double pixel(double v, const ToPixels& p) {
  double x = v * p.factor + p.offset;
  if (!p.wraps_low) x = std::max(x, 0.0);
  if (!p.wraps_high) x = std::min(x, 255.0);
  const double whole = p.cut ? std::trunc(x) : std::nearbyint(x);
  return whole - 256 * std::floor(whole / 256);
}

// How far off the pixels are, in levels: a value that began again counts for more than one that was rounded otherwise.
double levels_off(const ToPixels& p, const std::vector<float>& v, const std::vector<float>& y) {
  double squares = 0;
  for (size_t i = 0; i < y.size(); ++i) squares += std::pow(pixel(v[i], p) - y[i], 2);
  return std::sqrt(squares / static_cast<double>(std::max<size_t>(1, y.size())));
}

constexpr std::pair<double, double> kLines[] = {{127.5, 127.5}, {255.0, 0.0},  {127.5, 0.0},    {255.0, 127.5},
                                                {128.0, 128.0}, {256.0, 0.0},  {-127.5, 127.5}, {127.5, 128.0},
                                                {1.0, 0.0},     {127.0, 127.0}};

std::vector<ToPixels> pixel_forms() {
  std::vector<ToPixels> out;
  for (const bool cut : {false, true})
    for (const bool wraps : {false, true})
      for (const auto& [factor, offset] : kLines) out.push_back({factor, offset, cut, wraps, wraps});
  return out;
}

std::string words(const ToPixels& p) {
  return fmt::format("{}({} v {:+.5g}){}", p.cut ? "cut" : "round", number(p.factor), p.offset,
                     p.wraps_low && p.wraps_high ? " modulo 256"
                     : p.wraps_low               ? " held to 255 and below, modulo 256"
                     : p.wraps_high              ? " held to 0 and above, modulo 256"
                                                 : " held to 0 to 255");
}

EditName other_line(const ToPixels& r, double factor, double offset) {
  return {factor == r.factor   ? Cause("affine.offset")
          : offset == r.offset ? Cause("affine.scale")
                               : Cause("affine.scale_offset"),
          "make pixels as the reference does: " + words(r)};
}

std::vector<Edit<ToPixels>> pixel_edits(const ToPixels& r) {
  enum Kind { kBounds = 1, kLine };
  const std::string fix = "make pixels as the reference does: " + words(r);
  std::vector<Edit<ToPixels>> out{{{"precision.integer", fix}, [](ToPixels& p) { p.cut = !p.cut; }}};
  for (const auto& [low, high] : {std::pair{true, true}, {true, false}, {false, true}})
    if ((low && !r.wraps_low) || (high && !r.wraps_high))
      out.push_back({{"precision.clamp_missing", fix},
                     [low = low, high = high](ToPixels& p) { p.wraps_low = low, p.wraps_high = high; },
                     kBounds});
  for (const auto& [factor, offset] : kLines)
    if (factor != r.factor || offset != r.offset)
      out.push_back({other_line(r, factor, offset),
                     [factor = factor, offset = offset](ToPixels& p) { p.factor = factor, p.offset = offset; }, kLine});
  return out;
}

// Any line, from where nothing is held.
EditedForm<ToPixels> solved_line(const ToPixels& r, const std::vector<float>& v, const std::vector<float>& y) {
  EditedForm<ToPixels> best{r};
  LineFit points;
  for (size_t i = 0; i < y.size(); ++i)
    if (y[i] > 0 && y[i] < 255) points.add(v[i], y[i]);
  if (points.count() <= 32 || !points.has_slope(0)) return best;
  const Line line = points.line(0, 0);
  for (const ToPixels& p : {ToPixels{line.scale, line.offset}, {line.scale, line.offset + 0.5, true}})
    if (const double off = levels_off(p, v, y); off < best.residual)
      best = {p, off, {other_line(r, p.factor, p.offset)}};
  return best;
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
    const auto measure_r = [&](const ToPixels& p) { return levels_off(p, v_r, failing.r.v); };
    const auto measure_c = [&](const ToPixels& p) { return levels_off(p, v_c, failing.c.v); };
    const auto r = fit_reference(pixel_forms(), measure_r, 0);
    if (r.residual > kLevelsOfReference) continue;
    const auto is_enough = [](double off) { return off <= kLevelsOfReference; };
    Budget budget(1000);
    EditSearch<ToPixels> search(r.form, measure_c, 1, budget);
    const std::vector<Edit<ToPixels>> edits = pixel_edits(r.form);
    search.try_each(edits);
    search.try_all_pairs(edits, is_enough);
    if (!is_enough(search.best().residual))
      search.solve([&](const ToPixels& p, Budget&) { return solved_line(p, v_c, failing.c.v); });
    const EditedForm<ToPixels>& c = search.best();
    if (c.residual <= kLevelsOfCandidate && failing.is_better(c.residual, measure_c(r.form)))
      Report(words(r.form) + " of the decoder's values", r.residual / 255, out)
          .add(c.name(), words(c.form), std::min(c.residual, failing.tolerance), 0.8);
    return;
  }
}

}  // namespace lockstep
