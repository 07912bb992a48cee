// Pictures are the final arbiter: PSNR and SSIM of the recorded images.
#pragma once
#include "compare/comparison.h"

namespace lockstep {

double picture_psnr(const Values& a, const Values& b, double peak);
double picture_ssim(const Values& a, const Values& b, double peak);  // [height, width, channels]; mean over 8x8 windows

std::vector<ImagePair> compare_pictures(const RunView& reference, const RunView& candidate,
                                        const std::vector<PairResult>& results);

}  // namespace lockstep
