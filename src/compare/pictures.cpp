#include "compare/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr int64_t kLeastSide = 8;  // of floats: a few numbers in a row are no picture

// Where the axes are; channels -1 when this is no picture's shape.
struct PictureAxes {
  int64_t items = 1, height = 0, width = 0, channels = -1;
  bool channels_last = true;
};

PictureAxes picture_axes(const Shape& shape, int64_t least_side = 1) {
  PictureAxes out;
  if (shape.size() != 3 && shape.size() != 4) return out;
  const size_t first = shape.size() - 3;
  const int64_t a = shape[first], b = shape[first + 1], c = shape[first + 2];
  const auto are_channels = [](int64_t n) { return n == 1 || n == 3 || n == 4; };
  out.items = first ? shape[0] : 1;
  if (are_channels(c) && a >= least_side && b >= least_side) {
    out.height = a, out.width = b, out.channels = c;
  } else if (are_channels(a) && b >= least_side && c >= least_side) {
    out.height = b, out.width = c, out.channels = a, out.channels_last = false;
  }
  return out;
}

struct Range {
  double low = 0, scale = 1;  // to bytes: (value - low) * scale
};

Range range_of(const Values& x) {
  double low = 0, high = 0;
  for (const float value : x.v)
    if (std::isfinite(value)) low = std::min<double>(low, value), high = std::max<double>(high, value);
  if (high > 2) return {0, 1};
  return low < -0.05 ? Range{-1, 127.5} : Range{0, 255};
}

std::vector<Values> in_bytes(const Values& x, Range range) {
  const PictureAxes axes = picture_axes(x.shape);
  std::vector<Values> out;
  const int64_t pixels = axes.height * axes.width;
  for (int64_t item = 0; item < axes.items; ++item) {
    Values picture = make_values({axes.height, axes.width, axes.channels});
    for (int64_t p = 0; p < pixels; ++p)
      for (int64_t c = 0; c < axes.channels; ++c) {
        const int64_t inside = axes.channels_last ? p * axes.channels + c : c * pixels + p;
        const double value =
            (x.v[static_cast<size_t>(item * pixels * axes.channels + inside)] - range.low) * range.scale;
        picture.v[static_cast<size_t>(p * axes.channels + c)] =
            static_cast<float>(std::isfinite(value) ? std::clamp(value, 0.0, 255.0) : 0.0);
      }
    out.push_back(std::move(picture));
  }
  return out;
}

}  // namespace

bool shows_a_picture(const RecordedTensor& record) {
  if (record.role == Role::kInput) return false;
  if (record.dtype == DType::kU8) return picture_axes(record.shape).channels > 0;
  if (!is_floating(record.dtype) || picture_axes(record.shape, kLeastSide).channels < 0) return false;
  const std::string name = record.key.name.substr(record.key.name.rfind('.') + 1);
  for (const char* word : {"image", "pixel", "picture"})
    if (name.find(word) != std::string::npos) return true;
  return false;
}

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

Pictures pictures_of(const RecordedTensor& reference, const RecordedTensor& candidate) {
  Pictures out;
  if (!shows_a_picture(reference) || !shows_a_picture(candidate) || !reference.load || !candidate.load) return out;
  const Values r = values_from(reference.load());
  const Range range = reference.dtype == DType::kU8 ? Range{0, 1} : range_of(r);
  out.reference = in_bytes(r, range);
  const Values c = values_from(candidate.load());
  out.candidate = in_bytes(c, candidate.dtype == DType::kU8   ? Range{0, 1}
                              : reference.dtype == DType::kU8 ? range_of(c)
                                                              : range);
  if (out.reference.size() != out.candidate.size() || out.reference[0].shape != out.candidate[0].shape) return {};
  return out;
}

bool is_rounding_of_levels(const Tensor& candidate, const Tensor& reference) {
  const Values c = values_from(candidate), r = values_from(reference);
  if (c.v.size() != r.v.size()) return false;
  double sum = 0, off = 0;
  for (size_t i = 0; i < r.v.size(); ++i) {
    const double d = static_cast<double>(c.v[i]) - r.v[i];
    if (std::fabs(d) > 1) return false;
    sum += d, off += d != 0;
  }
  return std::fabs(sum) <= 4 * std::sqrt(off);  // four deviations of a coin
}

std::vector<ImagePair> compare_pictures(const RunView& reference, const RunView& candidate,
                                        const std::vector<PairResult>& results) {
  std::vector<ImagePair> out;
  for (size_t i = 0; i < results.size(); ++i) {
    const RecordedTensor& r = reference.records[results[i].pair.reference];
    const Pictures shown = pictures_of(r, candidate.records[results[i].pair.candidate]);
    for (size_t item = 0; item < shown.reference.size(); ++item) {
      const Values &a = shown.candidate[item], &b = shown.reference[item];
      const std::string name = shown.reference.size() == 1 ? r.key.name : fmt::format("{}[{}]", r.key.name, item);
      out.push_back({name, picture_psnr(a, b, 255), picture_ssim(a, b, 255), i, item});
    }
  }
  return out;
}

}  // namespace lockstep
