// Judges a picture against what its prompt promised: colours, background, relation, shape, count, word. It looks first
// (segment, classify, read) and compares afterwards, so that a picture can be wrong in any way.
#pragma once
#include <optional>

#include "support/scene_segmentation.h"

namespace lockstep::testing {

// Shapes by overlap with their outlines, laid over the object by its first moments and area; second moments and inner
// contours must fit as well.
class ShapeClassifier {
 public:
  explicit ShapeClassifier(const SceneDefinitions& definitions);
  std::string classify(const SceneObject& object) const;  // "" when it is like none

 private:
  struct Outline {
    std::string shape;
    double area = 0, cx = 0, cy = 0, spread_x = 0, spread_y = 0, hole = 0;  // unit coordinates
    std::vector<double> distance;  // sampled once: judging asks for it millions of times

    double distance_at(double x, double y) const;
  };
  double overlap(const Outline& outline, const SceneObject& object) const;

  std::vector<Outline> outlines_;
};

// The text of all objects together, by the best match of each letter's cells with the font.
std::string read_word(const SceneDefinitions& definitions, const std::vector<SceneObject>& strokes);

struct Verdict {
  std::optional<bool> background, colors, relation, shape, count, word;  // empty: the prompt does not promise it

  bool all_right() const;
};

struct Measure {
  const char* name;
  std::optional<bool> Verdict::*value;
};
inline constexpr std::array<Measure, 6> kMeasures{{{"colors", &Verdict::colors},
                                                   {"background", &Verdict::background},
                                                   {"relation", &Verdict::relation},
                                                   {"shape", &Verdict::shape},
                                                   {"count", &Verdict::count},
                                                   {"word", &Verdict::word}}};

class SceneChecker {
 public:
  explicit SceneChecker(const SceneDefinitions& definitions) : definitions_(definitions), classifier_(definitions) {}

  Verdict judge(const Tensor& pixels, const Expected& expected) const;         // u8 [H, W, 3]
  std::string describe(const Tensor& pixels, const Expected& expected) const;  // what it sees, for messages

 private:
  const SceneDefinitions& definitions_;
  ShapeClassifier classifier_;
};

}  // namespace lockstep::testing
