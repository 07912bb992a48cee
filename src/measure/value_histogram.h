// How the values of one or two tensors are distributed, on one axis; and the statistics of each slice along an axis.
// Both look at a bounded number of values, evenly spread where there are more.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tensor/statistics.h"

namespace lockstep {

struct ValueHistogram {
  double low = 0, high = 0;  // of the finite values that were looked at
  bool sampled = false;
  std::vector<std::vector<uint32_t>> counts;  // one list a tensor
};

// Nothing where no value is finite.
std::optional<ValueHistogram> value_histogram(std::span<const Tensor* const> tensors, size_t bins);

struct SliceStatistics {
  std::vector<int64_t> indices;  // along the axis
  std::vector<Statistics> statistics;
  bool sampled = false;
};

SliceStatistics slice_statistics(const Tensor& tensor, int axis, int64_t most_slices);

}  // namespace lockstep
