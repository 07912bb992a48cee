#include <algorithm>
#include <cmath>

#include "support/scene_checker.h"

namespace lockstep::testing {
namespace {

constexpr double kLeastOverlap = 0.72;

}  // namespace

ShapeClassifier::ShapeClassifier(const SceneDefinitions& definitions) : definitions_(definitions) {
  constexpr int kGrid = 240;
  constexpr double kExtent = 1.2, kCell = 2 * kExtent / kGrid;
  for (const std::string& shape : definitions.shapes()) {
    Outline outline{shape};
    SceneObject mask;
    mask.width = mask.height = kGrid;
    for (int i = 0; i < kGrid * kGrid; ++i) {
      const double x = (i % kGrid + 0.5) * kCell - kExtent, y = (i / kGrid + 0.5) * kCell - kExtent;
      const bool inside = definitions.shape_distance(shape, x, y) < 0;
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
      const double distance = definitions_.shape_distance(outline.shape, (x + 0.5 - cx) / r, (y + 0.5 - cy) / r) * r;
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
