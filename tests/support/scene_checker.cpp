#include "support/scene_checker.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

namespace lockstep::testing {
namespace {

// Smallest drawn shape: a star of radius 12.8, 236 pixels. Strokes of a word are a cell of 25 pixels at least.
constexpr double kSmallestShape = 40, kSmallestStroke = 12;
constexpr double kPlainBorder = 0.85;

double smallest_of(SceneKind kind) {
  return kind == SceneKind::kWord ? kSmallestStroke : kSmallestShape;
}

bool stands(const std::string& relation, double dx, double dy) {
  if (relation == "left") return dx < -std::fabs(dy);
  if (relation == "right") return dx > std::fabs(dy);
  if (relation == "above") return dy < -std::fabs(dx);
  return relation == "below" && dy > std::fabs(dx);
}

}  // namespace

bool Verdict::all_right() const {
  for (const Measure& measure : kMeasures)
    if (!(this->*measure.value).value_or(true)) return false;
  return true;
}

Verdict SceneChecker::judge(const Tensor& pixels, const Expected& expected) const {
  const Segmentation seen = segment(pixels, smallest_of(expected.kind));
  Verdict verdict;
  verdict.background =
      definitions_.nearest_color(seen.background) == expected.background && seen.background_share >= kPlainBorder;
  std::map<std::string, std::vector<const SceneObject*>> by_color;
  std::set<std::string> shown;
  for (const SceneObject& object : seen.objects) {
    const std::string& name = definitions_.nearest_color(object.ink);
    by_color[name].push_back(&object);
    shown.insert(name);
  }
  verdict.colors = shown == std::set<std::string>(expected.colors.begin(), expected.colors.end());
  switch (expected.kind) {
    case SceneKind::kWord:
      verdict.word = read_word(definitions_, seen.objects) == expected.word;
      break;
    case SceneKind::kPair: {
      const auto& a = by_color[expected.colors[0]];
      const auto& b = by_color[expected.colors[1]];
      const bool two = seen.objects.size() == 2 && a.size() == 1 && b.size() == 1;
      verdict.relation = two && stands(expected.relation, a[0]->cx - b[0]->cx, a[0]->cy - b[0]->cy);
      verdict.shape =
          two && classifier_.classify(*a[0]) == expected.shapes[0] && classifier_.classify(*b[0]) == expected.shapes[1];
      break;
    }
    case SceneKind::kCount:
      verdict.count = static_cast<int>(seen.objects.size()) == expected.count;
      [[fallthrough]];
    case SceneKind::kSingle:
      verdict.shape = !seen.objects.empty() && (expected.kind == SceneKind::kCount || seen.objects.size() == 1);
      for (const SceneObject& object : seen.objects)
        verdict.shape = *verdict.shape && classifier_.classify(object) == expected.shapes[0];
      break;
  }
  return verdict;
}

std::string SceneChecker::describe(const Tensor& pixels, const Expected& expected) const {
  const Segmentation seen = segment(pixels, smallest_of(expected.kind));
  std::string text = fmt::format("on {} ({:.0f} % of the border)", definitions_.nearest_color(seen.background),
                                 100 * seen.background_share);
  if (expected.kind == SceneKind::kWord) {
    std::set<std::string> inks;
    for (const SceneObject& object : seen.objects) inks.insert(definitions_.nearest_color(object.ink));
    text += " \"" + read_word(definitions_, seen.objects) + "\" in";
    for (const std::string& ink : inks) text += " " + ink;
    return text;
  }
  for (const SceneObject& object : seen.objects) {
    const std::string shape = classifier_.classify(object);
    text += fmt::format(", {} {} of {:.0f} px at {:.0f},{:.0f}", definitions_.nearest_color(object.ink),
                        shape.empty() ? "thing" : shape, object.area, object.cx, object.cy);
  }
  return text;
}

}  // namespace lockstep::testing
