#include "compare/likeness.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/interrupt.h"
#include "diagnose/layout/layouts.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

constexpr int64_t kSample = 256;        // elements of a tensor that are looked at
constexpr int64_t kMostOrders = 40000;  // orders of axes tried in one comparison
constexpr int64_t kMostPackings = 48;   // pairs whose axes are split and permuted
constexpr int64_t kMostPackedElements = 1 << 20;
constexpr double kSameValues = 1e-3;  // distance of statistics below which the values may be the same ones
constexpr double kRelated = 0.35;     // ... and above which no order of axes is looked for
constexpr size_t kMostRank = 5;

// Where tensors of that many elements are looked at: the same places for all of them.
int64_t sample_place(int64_t k, int64_t count, uint64_t& state) {
  if (count <= kSample) return k;
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<int64_t>((state >> 20) % static_cast<uint64_t>(count));
}

float element(const std::byte* data, DType dtype, int64_t at) {
  float out = 0;
  convert_elements(data + static_cast<size_t>(at) * dtype_bytes(dtype), dtype, &out, DType::kF32, 1);
  return out;
}

struct SampleLikeness {
  double error = 2, correlation = 0;
};

SampleLikeness compare_samples(const std::vector<float>& a, const std::vector<float>& b) {
  double dd = 0, aa = 0, bb = 0, ab = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i], y = b[i];
    if (!std::isfinite(x) || !std::isfinite(y)) {
      if (std::isnan(x) == std::isnan(y) && (std::isnan(x) || x == y)) continue;
      return {};
    }
    dd += (x - y) * (x - y), aa += x * x, bb += y * y, ab += x * y;
  }
  const double norm = std::max(aa, bb);
  if (!(norm > 0)) return {0, 1};
  return {std::sqrt(dd / norm), aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0};
}

Shape proper_axes(const Shape& shape) {
  Shape out;
  for (const int64_t size : shape)
    if (size != 1) out.push_back(size);
  return out;
}

}  // namespace

bool same_element_count(const RecordedTensor& a, const RecordedTensor& b) {
  return checked_numel(a.shape) == checked_numel(b.shape);
}

LikenessOracle::LikenessOracle(const RunView& reference, const RunView& candidate)
    : reference_(reference),
      candidate_(candidate),
      digests_r_(reference.records.size()),
      digests_c_(candidate.records.size()),
      orders_left_(kMostOrders),
      packings_left_(kMostPackings) {}

LikenessOracle::Digest& LikenessOracle::digest(const RunView& run, std::vector<Digest>& of, size_t index) {
  Digest& out = of[index];
  if (out.read) return out;
  out.read = true;
  const RecordedTensor& record = run.records[index];
  out.count = checked_numel(record.shape);
  if (!record.load || out.count == 0) return out;
  check_interrupt("pairing");
  const Tensor tensor = record.load().contiguous();
  const Statistics stats = record.stats && record.stats->count == out.count ? *record.stats : tensor_statistics(tensor);
  if (stats.finite() == 0) return out;
  out.rms = stats.rms, out.mean = stats.mean, out.low = stats.min, out.high = stats.max;
  uint64_t state = 12345;
  const std::byte* data = tensor.contiguous_bytes().data();
  for (int64_t k = 0; k < std::min(kSample, out.count); ++k)
    out.sample.push_back(element(data, tensor.dtype(), sample_place(k, out.count, state)));
  out.known = true;
  return out;
}

std::optional<LikenessOracle::Order> LikenessOracle::best_order(size_t reference_record, size_t candidate_record) {
  const RecordedTensor &r = reference_.records[reference_record], &c = candidate_.records[candidate_record];
  const Shape sizes_r = proper_axes(r.shape), sizes_c = proper_axes(c.shape);
  if (sizes_r.size() != sizes_c.size() || sizes_r.size() < 2 || sizes_r.size() > kMostRank) return std::nullopt;
  std::vector<int64_t> strides(sizes_c.size());
  int64_t stride = 1;
  for (size_t i = sizes_c.size(); i-- > 0;) strides[i] = stride, stride *= sizes_c[i];
  const Digest& expected = digest(reference_, digests_r_, reference_record);
  const Tensor tensor = c.load().contiguous();
  const std::byte* data = tensor.contiguous_bytes().data();
  std::vector<int> axes(sizes_c.size());
  std::iota(axes.begin(), axes.end(), 0);
  std::optional<Order> best;
  std::vector<float> own(expected.sample.size());
  while (std::next_permutation(axes.begin(), axes.end())) {
    bool fits = true;
    for (size_t i = 0; i < axes.size() && fits; ++i) fits = sizes_c[static_cast<size_t>(axes[i])] == sizes_r[i];
    if (!fits) continue;
    if (--orders_left_ < 0) break;
    uint64_t state = 12345;
    for (size_t k = 0; k < own.size(); ++k) {
      int64_t place = sample_place(static_cast<int64_t>(k), expected.count, state), from = 0;
      for (size_t i = sizes_r.size(); i-- > 0;)
        from += place % sizes_r[i] * strides[static_cast<size_t>(axes[i])], place /= sizes_r[i];
      own[k] = element(data, tensor.dtype(), from);
    }
    const SampleLikeness found = compare_samples(own, expected.sample);
    if (!best || found.error < best->error) best = Order{axes, found.error, found.correlation};
  }
  return best;
}

Likeness LikenessOracle::of(size_t reference_record, size_t candidate_record) {
  const RecordedTensor &r = reference_.records[reference_record], &c = candidate_.records[candidate_record];
  Likeness out;
  if (!same_element_count(r, c)) return out;
  const Digest& expected = digest(reference_, digests_r_, reference_record);
  const Digest& own = digest(candidate_, digests_c_, candidate_record);
  if (!expected.known || !own.known) {
    if (!r.checksum.empty() && r.checksum == c.checksum && r.dtype == c.dtype) out = {true, 0, 1, 1, false};
    return out;
  }
  out.known = true;
  const double scale = std::max(expected.rms, own.rms);
  if (expected.rms > 0) out.size = own.rms / expected.rms;
  const double spread = std::max(expected.high - expected.low, own.high - own.low);
  // Chance: two tensors of three elements are often alike, and all constants are.
  out.weight = !(spread > 1e-9 * scale) ? 0.1 : std::min(1.0, std::log2(1.0 + static_cast<double>(own.count)) / 6);
  const SampleLikeness flat = compare_samples(own.sample, expected.sample);
  out.error = flat.error, out.correlation = flat.correlation;
  if (!(scale > 0)) return out;
  const double apart = std::max({std::fabs(expected.rms - own.rms), std::fabs(expected.mean - own.mean),
                                 0.3 * std::fabs(expected.low - own.low), 0.3 * std::fabs(expected.high - own.high)}) /
                       scale;
  // Few values of the sample may agree by chance where all are equal but some (a mask): the whole's statistics decide.
  if (apart > 0.05 && out.error < 0.05) out.error = apart;
  const bool other_shape = proper_axes(r.shape) != proper_axes(c.shape);
  if (out.error < kSameValues || apart > kRelated || (!other_shape && apart > kSameValues)) return out;
  if (const auto order = best_order(reference_record, candidate_record); order && order->error < 0.5 * out.error)
    out.error = std::max(order->error, apart * 0.1), out.correlation = order->correlation, out.moved = true;
  if (out.error > kSameValues && apart < 0.1 * kSameValues && other_shape && own.count <= kMostPackedElements &&
      packings_left_-- > 0 && find_axis_order(values_from(r.load()), values_from(c.load()), 10 * kSameValues))
    out.error = kSameValues, out.correlation = 1, out.moved = true;
  return out;
}

std::optional<std::vector<int>> LikenessOracle::axis_order(size_t reference_record, size_t candidate_record) {
  const RecordedTensor &r = reference_.records[reference_record], &c = candidate_.records[candidate_record];
  if (!same_element_count(r, c) || r.shape == c.shape || r.shape.size() != c.shape.size()) return std::nullopt;
  const Likeness like = of(reference_record, candidate_record);
  if (!like.known || !like.moved || like.error > 0.1) return std::nullopt;
  const auto order = best_order(reference_record, candidate_record);
  if (!order || order->error > 0.1) return std::nullopt;
  // Axes of 1 go where the reference has them.
  std::vector<int> proper, ones, out;
  for (size_t i = 0; i < c.shape.size(); ++i) (c.shape[i] == 1 ? ones : proper).push_back(static_cast<int>(i));
  size_t one = 0, next = 0;
  for (const int64_t size : r.shape) {
    if (size == 1 ? one >= ones.size() : next >= order->axes.size()) return std::nullopt;
    out.push_back(size == 1 ? ones[one++] : proper[static_cast<size_t>(order->axes[next++])]);
  }
  return out;
}

}  // namespace lockstep
