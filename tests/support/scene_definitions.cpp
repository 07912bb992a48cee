#include "support/scene_definitions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace lockstep::testing {
namespace {

double polygon_distance(const std::vector<Point>& points, double x, double y) {
  double best = std::numeric_limits<double>::max();
  bool inside = false;
  for (size_t i = 0; i < points.size(); ++i) {
    const Point &a = points[i], &b = points[(i + 1) % points.size()];
    const double ex = b.x - a.x, ey = b.y - a.y;
    const double t = std::clamp(((x - a.x) * ex + (y - a.y) * ey) / (ex * ex + ey * ey + 1e-12), 0.0, 1.0);
    const double dx = x - a.x - t * ex, dy = y - a.y - t * ey;
    best = std::min(best, dx * dx + dy * dy);
    if ((a.y > y) != (b.y > y) && x < ex * (y - a.y) / ey + a.x) inside = !inside;
  }
  return inside ? -std::sqrt(best) : std::sqrt(best);
}

}  // namespace

double color_distance(const Color& a, const Color& b) {
  return std::sqrt((a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1]) + (a[2] - b[2]) * (a[2] - b[2]));
}

SceneDefinitions::SceneDefinitions(const Json& file) {
  for (const auto& [name, levels] : file.at("colors").items()) colors_.emplace_back(name, levels.get<Color>());
  const Json& shapes = file.at("shapes");
  circle_radius_ = shapes.at("circle").at("radius");
  ring_outer_ = shapes.at("ring").at("outer");
  ring_inner_ = shapes.at("ring").at("inner");
  shapes_ = {"circle", "ring"};
  for (const auto& [name, points] : shapes.at("polygons").items()) {
    shapes_.push_back(name);
    for (const Json& point : points) polygons_[name].push_back({point.at(0), point.at(1)});
  }
  for (const auto& [letter, rows] : file.at("font").at("rows").items())
    font_[letter.at(0)] = rows.get<std::vector<std::string>>();
}

const Color& SceneDefinitions::color(const std::string& name) const {
  for (const auto& [known, levels] : colors_)
    if (known == name) return levels;
  throw std::invalid_argument("no colour " + name);
}

const std::string& SceneDefinitions::nearest_color(const Color& color) const {
  return std::min_element(colors_.begin(), colors_.end(),
                          [&](const auto& a, const auto& b) {
                            return color_distance(a.second, color) < color_distance(b.second, color);
                          })
      ->first;
}

double SceneDefinitions::shape_distance(const std::string& shape, double x, double y) const {
  if (shape == "circle") return std::hypot(x, y) - circle_radius_;
  if (shape == "ring")
    return std::fabs(std::hypot(x, y) - (ring_outer_ + ring_inner_) / 2) - (ring_outer_ - ring_inner_) / 2;
  return polygon_distance(polygons_.at(shape), x, y);
}

double SceneDefinitions::letter_distance(char letter, double x, double y) const {
  constexpr double kCell = 2.0 / kFontRows;
  const std::vector<std::string>& rows = font_.at(letter);
  double to_ink = std::numeric_limits<double>::max(), to_paper = to_ink;
  for (int row = -1; row <= kFontRows; ++row)
    for (int column = -1; column <= kFontColumns; ++column) {
      const double left = (column - kFontColumns / 2.0) * kCell, top = (row - kFontRows / 2.0) * kCell;
      const double distance = std::hypot(std::max({left - x, x - left - kCell, 0.0}),  //
                                         std::max({top - y, y - top - kCell, 0.0}));
      const bool ink = row >= 0 && row < kFontRows && column >= 0 && column < kFontColumns &&
                       rows[static_cast<size_t>(row)][static_cast<size_t>(column)] == '#';
      (ink ? to_ink : to_paper) = std::min(ink ? to_ink : to_paper, distance);
    }
  return to_ink > 0 ? to_ink : -to_paper;
}

Expected expected_from_json(const Json& row) {
  static const std::map<std::string, SceneKind> kKinds{{"single", SceneKind::kSingle},
                                                       {"pair", SceneKind::kPair},
                                                       {"count", SceneKind::kCount},
                                                       {"word", SceneKind::kWord}};
  Expected expected;
  expected.kind = kKinds.at(row.at("kind").get<std::string>());
  expected.prompt = row.at("prompt");
  expected.seed = row.at("seed");
  expected.background = row.at("background");
  expected.colors = row.at("colors").get<std::vector<std::string>>();
  if (expected.kind == SceneKind::kWord) {
    expected.word = row.at("word");
    return expected;
  }
  expected.shapes = row.at("shapes").get<std::vector<std::string>>();
  expected.count = row.at("count");
  if (expected.kind == SceneKind::kPair) expected.relation = row.at("relation");
  return expected;
}

}  // namespace lockstep::testing
