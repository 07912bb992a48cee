#include "compare/pictures.h"

#include <cmath>
#include <limits>

namespace lockstep {

double picture_psnr(const Values& a, const Values& b, double peak) {
  double sum = 0;
  for (size_t i = 0; i < a.v.size(); ++i)
    sum += (static_cast<double>(a.v[i]) - b.v[i]) * (static_cast<double>(a.v[i]) - b.v[i]);
  if (sum == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(peak * peak * static_cast<double>(a.v.size()) / sum);
}

double picture_ssim(const Values& a, const Values& b, double peak) {
  constexpr int64_t kWindow = 8, kStride = 4;
  const int64_t height = a.shape[0], width = a.shape[1], channels = a.shape[2];
  const double c1 = 0.01 * peak * 0.01 * peak, c2 = 0.03 * peak * 0.03 * peak;
  double total = 0;
  int64_t windows = 0;
  for (int64_t y = 0; y + kWindow <= height; y += kStride)
    for (int64_t x = 0; x + kWindow <= width; x += kStride)
      for (int64_t c = 0; c < channels; ++c) {
        double sa = 0, sb = 0, aa = 0, bb = 0, ab = 0;
        for (int64_t dy = 0; dy < kWindow; ++dy)
          for (int64_t dx = 0; dx < kWindow; ++dx) {
            const size_t i = static_cast<size_t>(((y + dy) * width + x + dx) * channels + c);
            const double p = a.v[i], q = b.v[i];
            sa += p, sb += q, aa += p * p, bb += q * q, ab += p * q;
          }
        constexpr double kCount = kWindow * kWindow;
        const double ma = sa / kCount, mb = sb / kCount;
        const double va = aa / kCount - ma * ma, vb = bb / kCount - mb * mb, cov = ab / kCount - ma * mb;
        total += (2 * ma * mb + c1) * (2 * cov + c2) / ((ma * ma + mb * mb + c1) * (va + vb + c2));
        ++windows;
      }
  return windows ? total / static_cast<double>(windows) : 1;
}

std::vector<ImagePair> compare_pictures(const RunView& reference, const RunView& candidate,
                                        const std::vector<PairResult>& results) {
  std::vector<ImagePair> out;
  for (size_t i = 0; i < results.size(); ++i) {
    const RecordedTensor& r = reference.records[results[i].pair.reference];
    const RecordedTensor& c = candidate.records[results[i].pair.candidate];
    const bool picture = r.dtype == DType::kU8 && r.shape.size() == 3 && r.shape[2] <= 4 && r.shape == c.shape;
    if (!picture || !r.load || !c.load) continue;
    const Values a = values_from(c.load()), b = values_from(r.load());
    out.push_back({r.key.name, picture_psnr(a, b, 255), picture_ssim(a, b, 255), i});
  }
  return out;
}

}  // namespace lockstep
