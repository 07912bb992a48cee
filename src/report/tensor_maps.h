// Pictures of tensors for the page: heat maps of the reference, of yours and of their difference, and the histogram of
// both. Made in one pass over the values in bounded memory, and small enough that every tensor of a run has them.
#pragma once
#include <optional>

#include "base/json.h"
#include "tensor/tensor.h"

namespace lockstep {

inline constexpr int64_t kLargestMap = 128, kSmallestMap = 16;  // cells along one side

// Cells along a side so that `maps` of them stay within what a page should hold.
int64_t map_side(int64_t maps);

// A map's last axis lies across, all others down; a cell is the value farthest from zero in its block, as a signed byte
// in parts of the map's limit, and -128 where a value is not finite. Without a candidate only the reference is shown:
// the two are identical.
Json tensor_maps(const Tensor& reference, const std::optional<Tensor>& candidate, int64_t side);

}  // namespace lockstep
