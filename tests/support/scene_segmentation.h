// From pixels to objects, without knowing what was asked for: the background is what the border shows, an object is a
// connected part of one ink on it.
#pragma once
#include "support/scene_definitions.h"
#include "tensor/tensor.h"

namespace lockstep::testing {

struct SceneObject {
  Color ink{};                        // of its flat inside
  int left = 0, top = 0;              // of its box in the picture
  int width = 0, height = 0;          // of its box
  std::vector<double> cover;          // [height * width] share of the pixel that is ink, 0 outside the object
  double area = 0;                    // sum of cover
  double cx = 0, cy = 0;              // centre of mass in the picture, pixel centres at .5
  double spread_x = 0, spread_y = 0;  // second central moments

  double at(int x, int y) const { return cover[static_cast<size_t>(y * width + x)]; }
};

struct Segmentation {
  Color background{};
  double background_share = 0;       // of the border that shows it
  std::vector<SceneObject> objects;  // largest first; specks are left out
};

// `smallest`: objects of less area, in pixels of a 128x128 picture, are specks.
Segmentation segment(const Tensor& pixels, double smallest);

// Enclosed paper inside an object, as a share of the object's area: the inner contours.
double hole_share(const SceneObject& object);

}  // namespace lockstep::testing
