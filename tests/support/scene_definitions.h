// What the embedded model was taught to draw: palette, outlines and block font, and what a prompt promises. Both come
// from training/eval_prompts.json, which the training code writes, so that a test cannot drift from the training.
#pragma once
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace lockstep::testing {

using Color = std::array<double, 3>;  // 8-bit levels

double color_distance(const Color& a, const Color& b);

struct Point {
  double x = 0, y = 0;
};

// Unit coordinates, y down: a sprite of radius r covers about [-r, r] around its centre.
class SceneDefinitions {
 public:
  explicit SceneDefinitions(const Json& file);

  const std::vector<std::pair<std::string, Color>>& colors() const { return colors_; }
  const Color& color(const std::string& name) const;
  const std::string& nearest_color(const Color& color) const;
  const std::vector<std::string>& shapes() const { return shapes_; }
  const std::map<char, std::vector<std::string>>& font() const { return font_; }  // seven rows of five, '#' is ink

  // Signed distance to the outline in unit coordinates, negative inside. A letter is 7 cells high, from -1 to 1.
  double shape_distance(const std::string& shape, double x, double y) const;
  double letter_distance(char letter, double x, double y) const;

 private:
  std::vector<std::pair<std::string, Color>> colors_;
  std::vector<std::string> shapes_;
  std::map<std::string, std::vector<Point>> polygons_;
  std::map<char, std::vector<std::string>> font_;
  double circle_radius_ = 0, ring_outer_ = 0, ring_inner_ = 0;
};

inline constexpr int kFontColumns = 5, kFontRows = 7, kFontPitch = 6;  // in cells

enum class SceneKind { kSingle, kPair, kCount, kWord };

struct Expected {
  SceneKind kind = SceneKind::kSingle;
  std::string prompt;
  uint64_t seed = 0;
  std::string background;
  std::vector<std::string> shapes, colors;  // one entry an object; of a word only its ink
  std::string relation;                     // pair: where object 0 is as seen from object 1
  int count = 0;
  std::string word;
};

Expected expected_from_json(const Json& row);

}  // namespace lockstep::testing
