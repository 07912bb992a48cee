// How the values of one or two tensors are distributed, on one axis.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "measure/sample.h"

namespace lockstep {

struct ValueHistogram {
  double low = 0, high = 0;                   // of the finite values that were looked at
  bool sampled = false;                       // not every value was looked at
  int64_t looked_at = 0;                      // of all tensors together
  std::vector<std::vector<uint32_t>> counts;  // one list a tensor
};

// Nothing where no value is finite. Of a tensor of more than `most` values a sample of so many.
std::optional<ValueHistogram> value_histogram(std::span<const Tensor* const> tensors, size_t bins,
                                              int64_t most = kSampledElements);

}  // namespace lockstep
