// A tensor, or a part of it, as few enough cells to be looked at. The last axis lies across, all others down; a cell
// holds the value farthest from zero in its block, and NaN where one is not finite. The work is bounded: of a tensor of
// many gigabytes a sample is read (measure/sample.h), so that it opens as quickly as a small one, and all of what is
// small.
#pragma once
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

struct MapWindow {
  int64_t top = 0, left = 0;
  int64_t rows = 0, columns = 0;  // 0: to the end
};

struct HeatMap {
  int64_t rows = 0, columns = 0;  // of the whole tensor
  MapWindow window;               // the part that is shown
  int64_t height = 0, width = 0;  // cells
  bool sampled = false;           // not every value of the window was looked at
  int64_t looked_at = 0;          // values
  std::vector<float> cells;       // [height, width]

  float limit() const;  // the largest finite one without its sign; 0: none
};

struct HeatMaps {
  HeatMap reference, candidate, difference;
};

// At most `height` x `width` cells. Error{kBadInput} where the window lies outside. An empty tensor has no cells.
HeatMap heat_map(const Tensor& tensor, const MapWindow& window, int64_t height, int64_t width);
// Two tensors of one shape; difference: candidate - reference, 0 where both are NaN or the same infinity.
HeatMaps heat_maps(const Tensor& reference, const Tensor& candidate, const MapWindow& window, int64_t height,
                   int64_t width);

}  // namespace lockstep
