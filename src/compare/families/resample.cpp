// y = x enlarged twice: how the new pixels are made.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/families/fit.h"

namespace lockstep {
namespace {

enum class Kind { kNearest, kBilinear, kBilinearCorners, kSpaced, kShifted, kBicubic, kTiled };

const char* words(Kind kind) {
  switch (kind) {
    case Kind::kNearest:
      return "nearest pixel repeated";
    case Kind::kBilinear:
      return "bilinear";
    case Kind::kBilinearCorners:
      return "bilinear with aligned corners";
    case Kind::kShifted:
      return "nearest pixel repeated, one pixel further on";
    case Kind::kBicubic:
      return "bicubic";
    case Kind::kTiled:
      return "the whole picture repeated side by side";
    case Kind::kSpaced:
      break;
  }
  return "zeros between the pixels";
}

double interpolate(const Values& x, int64_t plane, int64_t h, int64_t w, double y_at, double x_at) {
  y_at = std::clamp(y_at, 0.0, static_cast<double>(h - 1)), x_at = std::clamp(x_at, 0.0, static_cast<double>(w - 1));
  const int64_t y0 = static_cast<int64_t>(y_at), x0 = static_cast<int64_t>(x_at), y1 = std::min(y0 + 1, h - 1),
                x1 = std::min(x0 + 1, w - 1);
  const double fy = y_at - static_cast<double>(y0), fx = x_at - static_cast<double>(x0);
  const auto at = [&](int64_t a, int64_t b) {
    return static_cast<double>(x.v[static_cast<size_t>((plane * h + a) * w + b)]);
  };
  return (1 - fy) * ((1 - fx) * at(y0, x0) + fx * at(y0, x1)) + fy * ((1 - fx) * at(y1, x0) + fx * at(y1, x1));
}

double cubic(double t) {
  constexpr double a = -0.75;
  t = std::fabs(t);
  return t <= 1 ? ((a + 2) * t - (a + 3)) * t * t + 1 : t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

double bicubic(const Values& x, int64_t plane, int64_t h, int64_t w, double y_at, double x_at) {
  const int64_t y0 = static_cast<int64_t>(std::floor(y_at)), x0 = static_cast<int64_t>(std::floor(x_at));
  double sum = 0;
  for (int64_t i = y0 - 1; i <= y0 + 2; ++i)
    for (int64_t j = x0 - 1; j <= x0 + 2; ++j)
      sum += cubic(y_at - static_cast<double>(i)) * cubic(x_at - static_cast<double>(j)) *
             x.v[static_cast<size_t>((plane * h + std::clamp<int64_t>(i, 0, h - 1)) * w +
                                     std::clamp<int64_t>(j, 0, w - 1))];
  return sum;
}

double residual_of(Kind kind, const Values& x, const Values& y) {
  const int64_t h = x.dim(-2), w = x.dim(-1), oh = y.dim(-2), ow = y.dim(-1), planes = x.size() / (h * w);
  double dd = 0, yy = 0;
  for (const int64_t plane : sample_indices(planes, 16))
    for (int64_t i = 0; i < oh; ++i)
      for (int64_t j = 0; j < ow; ++j) {
        double value = 0;
        if (kind == Kind::kNearest)
          value = x.v[static_cast<size_t>((plane * h + i * h / oh) * w + j * w / ow)];
        else if (kind == Kind::kBilinear)
          value = interpolate(x, plane, h, w,
                              (static_cast<double>(i) + 0.5) * static_cast<double>(h) / static_cast<double>(oh) - 0.5,
                              (static_cast<double>(j) + 0.5) * static_cast<double>(w) / static_cast<double>(ow) - 0.5);
        else if (kind == Kind::kBilinearCorners)
          value = interpolate(x, plane, h, w,
                              static_cast<double>(i * (h - 1)) / static_cast<double>(std::max<int64_t>(1, oh - 1)),
                              static_cast<double>(j * (w - 1)) / static_cast<double>(std::max<int64_t>(1, ow - 1)));
        else if (kind == Kind::kBicubic)
          value = bicubic(x, plane, h, w,
                          (static_cast<double>(i) + 0.5) * static_cast<double>(h) / static_cast<double>(oh) - 0.5,
                          (static_cast<double>(j) + 0.5) * static_cast<double>(w) / static_cast<double>(ow) - 0.5);
        else if (kind == Kind::kShifted)
          value = x.v[static_cast<size_t>((plane * h + std::min((i + 1) * h / oh, h - 1)) * w +
                                          std::min((j + 1) * w / ow, w - 1))];
        else if (kind == Kind::kTiled)
          value = x.v[static_cast<size_t>((plane * h + i % h) * w + j % w)];
        else if (i % 2 == 0 && j % 2 == 0)
          value = x.v[static_cast<size_t>((plane * h + i / 2) * w + j / 2)];
        const double target = y.v[static_cast<size_t>((plane * oh + i) * ow + j)];
        dd += (value - target) * (value - target), yy += target * target;
      }
  return yy > 0 ? std::sqrt(dd / yy) : INFINITY;
}

}  // namespace

void search_resample(Case& failing, Findings& out) {
  if (failing.r.rank() < 3 || !std::isfinite(failing.error)) return;
  for (const Item& item : failing.items) {
    if (item.relation != Relation::kOwnInput || item.shape.size() != failing.r.rank()) continue;
    if (failing.r.dim(-2) != 2 * item.shape[item.shape.size() - 2] || failing.r.dim(-1) != 2 * item.shape.back())
      continue;
    if (checked_numel(item.shape) * 4 != failing.r.size()) continue;
    Kind kind_r = Kind::kNearest, kind_c = Kind::kNearest;
    double r = INFINITY, c = INFINITY;
    for (const Kind kind : {Kind::kNearest, Kind::kBilinear, Kind::kBilinearCorners, Kind::kSpaced, Kind::kShifted,
                            Kind::kBicubic, Kind::kTiled}) {
      const double of_r = residual_of(kind, failing.reference_of(item), failing.r),
                   of_c = residual_of(kind, failing.candidate_of(item), failing.c);
      if (of_r < r) r = of_r, kind_r = kind;
      if (of_c < c) c = of_c, kind_c = kind;
    }
    if (failing.explains(r) && failing.explains_candidate(c) && kind_r != kind_c)
      out.push_back({"resample.kind", fmt::format("reference: enlarged, {}; yours: {}", words(kind_r), words(kind_c)),
                     fmt::format("use {}", words(kind_r)), "", r, c, 0.7, 0, Blame::kNone});
    return;
  }
}

}  // namespace lockstep
