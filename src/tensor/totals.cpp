#include "tensor/totals.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensor/convert.h"
#include "tensor/element_blocks.h"

namespace lockstep {
namespace {

constexpr int64_t kLanes = 8;  // sums side by side, so that one addition need not wait for the one before

// Elements of one block. `first` is the first element of the whole.
struct BlockTotals {
  double sum = 0, absolute = 0, squares = 0;
  bool uniform = true, binary = true;
};

BlockTotals sums_of_block(const float* values, int64_t count, float first) {
  double sum[kLanes] = {}, absolute[kLanes] = {}, squares[kLanes] = {};
  int other = 0, neither = 0;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sum[lane] += value;
      absolute[lane] += std::fabs(value);
      squares[lane] += value * value;
      other |= static_cast<int>(values[i + lane] != first);
      neither |= static_cast<int>(values[i + lane] != 0) & static_cast<int>(values[i + lane] != 1);
    }
  BlockTotals out;
  for (; i < count; ++i) {
    const double value = values[i];
    sum[0] += value;
    absolute[0] += std::fabs(value);
    squares[0] += value * value;
    other |= static_cast<int>(values[i] != first);
    neither |= static_cast<int>(values[i] != 0) & static_cast<int>(values[i] != 1);
  }
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    out.sum += sum[lane];
    out.absolute += absolute[lane];
    out.squares += squares[lane];
  }
  out.uniform = other == 0;
  out.binary = neither == 0;
  return out;
}

void join(Totals& to, const Totals& part) {
  to.count += part.count;
  to.infinite += part.infinite;
  to.nan += part.nan;
  to.sum += part.sum;
  to.absolute += part.absolute;
  to.squares += part.squares;
  to.uniform &= part.uniform;
  to.binary &= part.binary;
}

Totals totals_of_block(const float* values, int64_t count, float first) {
  const BlockTotals block = sums_of_block(values, count, first);
  Totals out{count, 0, 0, block.sum, block.absolute, block.squares, block.uniform, block.binary};
  if (std::isfinite(block.squares)) return out;  // the square of a float is far from a double's largest
  out.sum = out.absolute = out.squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (std::isnan(values[i])) {
      ++out.nan;
    } else if (std::isinf(values[i])) {
      ++out.infinite;
    } else {
      out.sum += values[i];
      out.absolute += std::fabs(values[i]);
      out.squares += static_cast<double>(values[i]) * values[i];
    }
  }
  return out;
}

// `floats(begin, count)`: so many elements from there.
template <typename Floats>
Totals joined_blocks(int64_t count, float first, const Floats& floats) {
  const int64_t chunk = chunk_elements(count);
  std::vector<Totals> parts(static_cast<size_t>((count + chunk - 1) / chunk));
#pragma omp parallel for schedule(dynamic) if (parts.size() > 1)
  for (size_t part = 0; part < parts.size(); ++part) {
    const int64_t begin = static_cast<int64_t>(part) * chunk, end = std::min(begin + chunk, count);
    Totals all;
    all.uniform = all.binary = true;
    floats(begin, end, [&](const float* values, int64_t size) { join(all, totals_of_block(values, size, first)); });
    parts[part] = all;
  }
  Totals out;
  out.uniform = out.binary = true;
  for (const Totals& part : parts) join(out, part);
  return out;
}

}  // namespace

Totals totals_of(std::span<const float> values) {
  const float first = values.empty() ? 0 : values.front();
  return joined_blocks(static_cast<int64_t>(values.size()), first,
                       [&](int64_t begin, int64_t end, const auto& take) { take(values.data() + begin, end - begin); });
}

Totals totals_of(const Tensor& tensor) {
  const ElementBlocks blocks(tensor);
  const auto each = [&](int64_t begin, int64_t end, const auto& take) {
    alignas(64) std::byte raw[kBlockElements * 8];
    alignas(64) float floats[kBlockElements];
    for (int64_t at = begin; at < end; at += kBlockElements) {
      const int64_t size = std::min(kBlockElements, end - at);
      const std::byte* from = blocks.raw(at, size, raw);
      if (blocks.dtype() == DType::kF32) {
        take(reinterpret_cast<const float*>(from), size);
      } else {
        convert_elements(from, blocks.dtype(), floats, DType::kF32, size);
        take(floats, size);
      }
    }
  };
  float first = 0;
  if (tensor.numel() > 0) each(0, 1, [&](const float* values, int64_t) { first = *values; });
  return joined_blocks(tensor.numel(), first, each);
}

bool may_agree(const Totals& a, const Totals& b, double tolerance) {
  if (a.count != b.count || a.nan != b.nan) return false;
  if (a.infinite > 0 || b.infinite > 0) return true;  // the same mask in other numbers: elements decide
  const double length_a = std::sqrt(a.squares), length_b = std::sqrt(b.squares);
  const double allowed = tolerance * std::max(length_a, length_b) + 1e-30;
  const double root = std::sqrt(static_cast<double>(a.count));
  return std::fabs(length_a - length_b) <= allowed && std::fabs(a.sum - b.sum) <= root * allowed &&
         std::fabs(a.absolute - b.absolute) <= root * allowed;
}

}  // namespace lockstep
