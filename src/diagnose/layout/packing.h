// Latents as tokens: patches of 2 x 2 pixels, the tokens' values [row of patches, column of patches | channel, row in
// the patch, column in the patch], and what becomes of them when these five are laid down in another order.
#pragma once
#include <array>
#include <functional>
#include <string>

#include "measure/values.h"

namespace lockstep {

struct PatchGrid {
  int64_t rows = 1, columns = 1, channels = 1;
};
using PatchOrder = std::array<size_t, 5>;  // which of the five comes first, second, ..
inline constexpr PatchOrder kPacked{0, 1, 2, 3, 4}, kPicture{2, 0, 3, 1, 4};

// Where element `i` of the tensor in `order` stands in the packed one, whose memory holds the five in the order
// `memory`.
class PatchPlaces {
 public:
  PatchPlaces(const PatchGrid& grid, const PatchOrder& order, const PatchOrder& memory = kPacked);
  size_t operator()(size_t i) const {
    size_t from = 0;
    for (size_t k = sizes_.size(); k-- > 0; i /= sizes_[k]) from += i % sizes_[k] * steps_[k];
    return from;
  }
  size_t size() const { return size_; }

 private:
  std::array<size_t, 5> sizes_{}, steps_{};
  size_t size_ = 1;
};

Values from_packed(const Values& packed, const PatchGrid& grid, const PatchOrder& order,
                   const PatchOrder& memory = kPacked);                                 // flat, item by item
Values to_packed(const Values& other, const PatchGrid& grid, const PatchOrder& order);  // the way back
// "row of patches, column of patches, channel, .."; of a token alone: "channel, row, column".
std::string words(const PatchOrder& order, bool of_token);
// All orders but `except`, those that leave the tokens where they are first; until `f` says true.
bool any_patch_order(const PatchOrder& except, const std::function<bool(const PatchOrder&)>& f);

}  // namespace lockstep
