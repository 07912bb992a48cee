// The numbers of a tensor as a picture: one scale of colours from the smallest to the largest value, or three channels
// as red, green and blue. What is not finite is seen at once.
#pragma once
#include <string>

#include "base/json.h"

namespace lockstep {

struct TensorPicture {
  std::string png;
  int64_t width = 0, height = 0;
  double least = 0, most = 0;  // of the finite values; both 0 where there are none
  int64_t not_finite = 0;
};

// `numbers` is what the program's side says: tiles, channels, height, width, floats (base64 of float32).
// Error{kCorrupt} where it does not fit itself.
TensorPicture tensor_picture(const Json& numbers);

}  // namespace lockstep
