#include "measure/value_histogram.h"

#include <algorithm>
#include <cmath>

#include "base/interrupt.h"
#include "measure/float_reader.h"

namespace lockstep {
namespace {

constexpr int64_t kHistogramElements = 1 << 18, kStatisticsElements = 1 << 24;  // sampled beyond these

// Whole rows, evenly spread, so that at most kHistogramElements are looked at.
std::vector<float> sample_of(const Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  const int64_t columns = tensor.rank() ? tensor.dim(-1) : 1, rows = tensor.numel() / columns;
  const int64_t wanted = std::clamp<int64_t>(kHistogramElements / columns, 1, rows);
  const int64_t width = std::min(columns, kHistogramElements);
  FloatReader reader(tensor);
  std::vector<float> out(static_cast<size_t>(wanted * width));
  for (int64_t i = 0; i < wanted; ++i) reader.read(i * rows / wanted * columns, width, out.data() + i * width);
  return out;
}

std::vector<uint32_t> counts_of(const std::vector<float>& sample, double low, double high, size_t bins) {
  std::vector<uint32_t> counts(bins);
  const double width = high - low;
  for (const float value : sample) {
    if (!std::isfinite(value)) continue;
    const double at = width > 0 ? (value - low) / width * static_cast<double>(bins) : static_cast<double>(bins / 2);
    ++counts[std::min(static_cast<size_t>(std::max(0.0, at)), bins - 1)];
  }
  return counts;
}

// Every n-th slice along the longest axis beside `axis`, again and again, until few enough values are left.
Tensor thinned(Tensor tensor, int axis, int64_t most) {
  while (tensor.numel() > most) {
    int longest = -1;
    for (int k = 0; k < static_cast<int>(tensor.rank()); ++k)
      if (k != axis && tensor.dim(k) > 1 && (longest < 0 || tensor.dim(k) > tensor.dim(longest))) longest = k;
    if (longest < 0) break;
    const int64_t size = tensor.dim(longest), step = std::min(size, (tensor.numel() + most - 1) / most);
    tensor = tensor.slice(longest, 0, size, std::max<int64_t>(2, step));
  }
  return tensor;
}

}  // namespace

std::optional<ValueHistogram> value_histogram(std::span<const Tensor* const> tensors, size_t bins) {
  ValueHistogram out;
  std::vector<std::vector<float>> samples;
  double low = INFINITY, high = -INFINITY;
  for (const Tensor* tensor : tensors) {
    samples.push_back(sample_of(*tensor));
    out.sampled |= static_cast<int64_t>(samples.back().size()) < tensor->numel();
    for (const float value : samples.back())
      if (std::isfinite(value)) low = std::min<double>(low, value), high = std::max<double>(high, value);
  }
  if (!(low <= high)) return std::nullopt;
  out.low = low, out.high = high;
  for (const std::vector<float>& sample : samples) out.counts.push_back(counts_of(sample, low, high, bins));
  return out;
}

SliceStatistics slice_statistics(const Tensor& tensor, int axis, int64_t most_slices) {
  SliceStatistics out;
  const int64_t size = tensor.dim(axis), taken = std::min(size, most_slices);
  for (int64_t k = 0; k < taken; ++k) out.indices.push_back(k * size / taken);
  for (const int64_t index : out.indices) {
    check_interrupt("tensor statistics");
    const Tensor slice = tensor.select(axis, index);
    const Tensor few = thinned(slice, -1, std::max<int64_t>(1, kStatisticsElements / taken));
    out.sampled |= few.numel() < slice.numel();
    out.statistics.push_back(tensor_statistics(few));
  }
  out.sampled |= taken < size;
  return out;
}

}  // namespace lockstep
