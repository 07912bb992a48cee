#include "measure/error_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr size_t kBinsPerOctave = 1u << (23 - ErrorHistogram::kShift);

}  // namespace

size_t ErrorHistogram::bin_of(double error) {
  const float clamped = static_cast<float>(std::min(error, static_cast<double>(std::numeric_limits<float>::max())));
  return std::bit_cast<uint32_t>(clamped) >> kShift;
}

double ErrorHistogram::lower_bound(size_t bin) {
  return std::bit_cast<float>(static_cast<uint32_t>(bin) << kShift);
}

void ErrorHistogram::merge(const ErrorHistogram& other) {
  for (size_t i = 0; i < kBins; ++i) counts_[i] += other.counts_[i];
}

int64_t ErrorHistogram::total() const {
  int64_t sum = 0;
  for (const int64_t count : counts_) sum += count;
  return sum;
}

double ErrorHistogram::quantile(double q) const {
  const int64_t all = total();
  if (all == 0) return 0;
  const double rank = q * static_cast<double>(all - 1);
  int64_t before = 0;
  for (size_t i = 0; i < kBins; ++i) {
    if (counts_[i] == 0 || rank >= static_cast<double>(before + counts_[i])) {
      before += counts_[i];
      continue;
    }
    if (i == 0) return 0;
    // Elements of one bin are taken as evenly spread over it.
    const double inside = (rank - static_cast<double>(before) + 0.5) / static_cast<double>(counts_[i]);
    const double low = lower_bound(i), high = i + 1 < kBins ? lower_bound(i + 1) : low;
    return low + std::min(inside, 1.0) * (high - low);
  }
  return 0;
}

std::vector<ErrorHistogram::Row> ErrorHistogram::rows(size_t most) const {
  std::vector<Row> rows;
  if (counts_[0] > 0) rows.push_back({0, 0, counts_[0]});
  size_t first = 1, last = kBins;
  while (first < kBins && counts_[first] == 0) ++first;
  if (first == kBins) return rows;
  while (counts_[last - 1] == 0) --last;
  first = first / kBinsPerOctave * kBinsPerOctave;
  const size_t octaves = (last - first + kBinsPerOctave - 1) / kBinsPerOctave;
  const size_t room = std::max<size_t>(1, most - std::min(most, rows.size()));
  const size_t width = (octaves + room - 1) / room * kBinsPerOctave;
  for (size_t begin = first; begin < last; begin += width) {
    const size_t end = std::min(begin + width, kBins);
    int64_t count = 0;
    for (size_t i = std::max<size_t>(begin, 1); i < end; ++i) count += counts_[i];
    rows.push_back(
        {lower_bound(begin), end < kBins ? lower_bound(end) : std::numeric_limits<double>::infinity(), count});
  }
  return rows;
}

}  // namespace lockstep
