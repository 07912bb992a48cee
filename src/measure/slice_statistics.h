// Statistics of each slice of a tensor along an axis: its channels, heads, steps.
#pragma once
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

// One of each for a slice. NaN and infinities are counted as bad and otherwise left out; NaN where nothing is left.
struct SliceStatistics {
  std::vector<int64_t> indices;  // along the axis
  std::vector<double> mean, std, min, max;
  std::vector<int64_t> bad;
  bool sampled = false;   // not every value, or not every slice, was looked at
  int64_t looked_at = 0;  // values
};

// Of at most `most_slices` slices, evenly spread; of a tensor that is too large to be read whole, fewer.
SliceStatistics slice_statistics(const Tensor& tensor, int axis, int64_t most_slices);

}  // namespace lockstep
