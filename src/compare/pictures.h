// Pictures are the final arbiter: PSNR and SSIM of the recorded images.
#pragma once
#include "compare/comparison.h"

namespace lockstep {

double picture_psnr(const Values& a, const Values& b, double peak);
double picture_ssim(const Values& a, const Values& b, double peak);  // [height, width, channels]; mean over 8x8 windows

// What a record shows: [height, width, channels] from 0 to 255, one for each item of a batch. Bytes of that shape,
// channels first or last, or floats under a name that says image; empty when it is no picture.
struct Pictures {
  std::vector<Values> reference, candidate;
};
bool shows_a_picture(const RecordedTensor& record);
Pictures pictures_of(const RecordedTensor& reference, const RecordedTensor& candidate);

// Pixels that were rounded from values a hair apart are one level off, up here and down there. Cut off instead of
// rounded they would all be off the same way.
bool is_rounding_of_levels(const Tensor& candidate, const Tensor& reference);

std::vector<ImagePair> compare_pictures(const RunView& reference, const RunView& candidate,
                                        const std::vector<PairResult>& results);

}  // namespace lockstep
