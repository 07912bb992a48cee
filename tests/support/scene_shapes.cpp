#include <algorithm>
#include <cmath>

#include "support/scene_checker.h"

namespace lockstep::testing {
namespace {

constexpr double kLeastOverlap = 0.72;
constexpr int kGrid = 240;
constexpr double kExtent = 1.2, kCell = 2 * kExtent / kGrid;  // unit coordinates: sample i lies at (i + 0.5) cells

}  // namespace

ShapeClassifier::ShapeClassifier(const SceneDefinitions& definitions) {
  for (const std::string& shape : definitions.shapes()) {
    Outline outline;
    outline.shape = shape;
    SceneObject mask;
    mask.width = mask.height = kGrid;
    for (int i = 0; i < kGrid * kGrid; ++i) {
      const double x = (i % kGrid + 0.5) * kCell - kExtent, y = (i / kGrid + 0.5) * kCell - kExtent;
      outline.distance.push_back(definitions.shape_distance(shape, x, y));
      const bool inside = outline.distance.back() < 0;
      mask.cover.push_back(inside);
      if (!inside) continue;
      outline.area += 1;
      outline.cx += x;
      outline.cy += y;
      outline.spread_x += x * x;
      outline.spread_y += y * y;
    }
    mask.area = outline.area;
    outline.hole = hole_share(mask);
    outline.cx /= outline.area;
    outline.cy /= outline.area;
    outline.spread_x = outline.spread_x / outline.area - outline.cx * outline.cx;
    outline.spread_y = outline.spread_y / outline.area - outline.cy * outline.cy;
    outline.area *= kCell * kCell;
    outlines_.push_back(outline);
  }
}

double ShapeClassifier::Outline::distance_at(double x, double y) const {
  if (std::max(std::fabs(x), std::fabs(y)) >= kExtent) return 1;  // far outside of every outline
  const double u = std::clamp((x + kExtent) / kCell - 0.5, 0.0, kGrid - 1.001);
  const double v = std::clamp((y + kExtent) / kCell - 0.5, 0.0, kGrid - 1.001);
  const double fu = u - std::floor(u), fv = v - std::floor(v);
  const double* at = distance.data() + static_cast<int>(v) * kGrid + static_cast<int>(u);
  return (at[0] * (1 - fu) + at[1] * fu) * (1 - fv) + (at[kGrid] * (1 - fu) + at[kGrid + 1] * fu) * fv;
}

double ShapeClassifier::overlap(const Outline& outline, const SceneObject& object) const {
  const double r = std::sqrt(object.area / outline.area);
  const double cx = object.cx - r * outline.cx, cy = object.cy - r * outline.cy;
  const int reach = static_cast<int>(1.2 * r) + 2;
  double shared = 0, either = 0;
  const int left = std::min(object.left, static_cast<int>(cx) - reach),
            top = std::min(object.top, static_cast<int>(cy) - reach);
  const int right = std::max(object.left + object.width, static_cast<int>(cx) + reach + 1);
  const int bottom = std::max(object.top + object.height, static_cast<int>(cy) + reach + 1);
  for (int y = top; y < bottom; ++y)
    for (int x = left; x < right; ++x) {
      const double distance = outline.distance_at((x + 0.5 - cx) / r, (y + 0.5 - cy) / r) * r;
      const double wanted = std::clamp(0.5 - distance, 0.0, 1.0);
      const int ox = x - object.left, oy = y - object.top;
      const bool in_box = ox >= 0 && oy >= 0 && ox < object.width && oy < object.height;
      const double seen = in_box ? object.at(ox, oy) : 0.0;
      shared += std::min(wanted, seen);
      either += std::max(wanted, seen);
    }
  return shared / either;
}

std::string ShapeClassifier::classify(const SceneObject& object) const {
  const double hole = hole_share(object);
  std::string best;
  double best_score = 0;
  for (const Outline& outline : outlines_) {
    // ring: a third of its ink is hole; a closed shape may have a pinhole
    if ((outline.hole > 0.1) != (hole > 0.08)) continue;
    const double covered = overlap(outline, object);
    if (covered < kLeastOverlap) continue;
    const double slimness = std::log(object.spread_x / object.spread_y) - std::log(outline.spread_x / outline.spread_y);
    const double score = covered - 0.15 * std::fabs(slimness);
    if (score > best_score) {
      best_score = score;
      best = outline.shape;
    }
  }
  return best;
}

}  // namespace lockstep::testing
