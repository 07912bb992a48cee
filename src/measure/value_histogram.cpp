#include "measure/value_histogram.h"

#include <algorithm>
#include <cmath>

#include "base/interrupt.h"
#include "measure/float_reader.h"

namespace lockstep {
namespace {

// Hands out the values that are looked at, a block at a time. How many there are.
template <typename Each>
int64_t walk_sample(const Tensor& tensor, int64_t most, Each&& each) {
  if (tensor.numel() == 0) return 0;
  const int64_t columns = tensor.rank() ? tensor.dim(-1) : 1;
  const auto runs =
      spread_runs(tensor.numel(), values_to_read(tensor, tensor.numel() / columns, columns, most), kSampledPlaces);
  fetch_soon(tensor, runs);
  FloatReader reader(tensor);
  std::vector<float> block(static_cast<size_t>(kBlockElements));
  int64_t looked_at = 0;
  for (const Neighbours& run : runs) {
    check_interrupt("tensor histogram");
    for (int64_t done = 0; done < run.count; done += kBlockElements) {
      const int64_t size = std::min(kBlockElements, run.count - done);
      reader.read(run.begin + done, size, block.data());
      each(std::span<const float>(block.data(), static_cast<size_t>(size)));
    }
    looked_at += run.count;
  }
  return looked_at;
}

}  // namespace

std::optional<ValueHistogram> value_histogram(std::span<const Tensor* const> tensors, size_t bins, int64_t most) {
  ValueHistogram out;
  float low = INFINITY, high = -INFINITY;
  for (const Tensor* tensor : tensors) {
    const int64_t looked_at = walk_sample(*tensor, most, [&](std::span<const float> values) {
      for (const float value : values)
        if (std::isfinite(value)) low = std::min(low, value), high = std::max(high, value);
    });
    out.looked_at += looked_at;
    out.sampled |= looked_at < tensor->numel();
  }
  if (!(low <= high)) return std::nullopt;
  out.low = low, out.high = high;
  const double scale = high > low ? static_cast<double>(bins) / (out.high - out.low) : 0;
  const double first = high > low ? 0 : static_cast<double>(bins / 2);  // of one value alone: in the middle
  const auto last = static_cast<double>(bins - 1);
  for (const Tensor* tensor : tensors) {
    std::vector<uint32_t> counts(bins);
    walk_sample(*tensor, most, [&](std::span<const float> values) {
      for (const float value : values)
        if (std::isfinite(value))
          ++counts[static_cast<size_t>(std::clamp(first + (value - out.low) * scale, 0.0, last))];
    });
    out.counts.push_back(std::move(counts));
  }
  return out;
}

}  // namespace lockstep
