// Draws scenes as the training data was drawn: flat sprites with one pixel of anti-aliasing. The checker is tested on
// these pictures, whose truth is known.
#pragma once
#include <random>

#include "support/scene_definitions.h"
#include "tensor/tensor.h"

namespace lockstep::testing {

struct Sprite {
  std::string shape;  // or empty: `letter`
  char letter = 0;
  double cx = 0, cy = 0, r = 1;  // pixels
  Color color{};
};

struct Scene {
  int width = 128, height = 128;
  Color background{};
  std::vector<Sprite> sprites;  // later ones are on top
};

Tensor render(const SceneDefinitions& definitions, const Scene& scene);  // u8 [H, W, 3]

// A random promise of that kind and background, whose colours can be told apart as the caption grammar demands.
Expected random_expectation(const SceneDefinitions& definitions, SceneKind kind, const std::string& background,
                            std::mt19937_64& random);
// A scene that keeps the promise, with the sizes and places of the training data.
Scene lay_out(const SceneDefinitions& definitions, const Expected& expected, int width, int height,
              std::mt19937_64& random);

}  // namespace lockstep::testing
