#include "tensor/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/interrupt.h"
#include "tensor/convert.h"
#include "tensor/element_blocks.h"
#include "tensor/statistics_kernel.h"

namespace lockstep {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Scratch {
  alignas(64) std::byte raw[kBlockElements * 8];
  alignas(64) float floats[kBlockElements];
  alignas(64) double doubles[kBlockElements];
};

const float* block_as_floats(const ElementBlocks& blocks, const std::byte* raw, int64_t count, float* scratch) {
  if (blocks.dtype() == DType::kF32) return reinterpret_cast<const float*>(raw);
  convert_elements(raw, blocks.dtype(), scratch, DType::kF32, count);
  return scratch;
}

void add_doubles(const double* values, int64_t count, double normal, Moments& moments) {
  for (int64_t i = 0; i < count; ++i) moments.add(values[i], normal);
}

void add_floats(const float* values, int64_t count, double normal, Moments& moments) {
  BlockMoments block;
  const int64_t done = float_block_moments(values, count, static_cast<float>(normal), block);
  int64_t rest = 0;
  if (done > 0 && std::isfinite(block.sum_of_squares)) {
    moments.merge(Moments::of_block(block, done));
    rest = done;
  }
  for (int64_t i = rest; i < count; ++i) moments.add(values[i], normal);
}

void add_block(const ElementBlocks& blocks, int64_t begin, int64_t count, double normal, Scratch& scratch,
               Moments& moments) {
  const std::byte* raw = blocks.raw(begin, count, scratch.raw);
  if (fits_float(blocks.dtype())) {
    add_floats(block_as_floats(blocks, raw, count, scratch.floats), count, normal, moments);
  } else {
    convert_elements(raw, blocks.dtype(), scratch.doubles, DType::kF64, count);
    add_doubles(scratch.doubles, count, normal, moments);
  }
}

}  // namespace

double smallest_normal(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::numeric_limits<double>::min();
    case DType::kF32:
    case DType::kBF16:
      return std::numeric_limits<float>::min();
    case DType::kF16:
    case DType::kF8E5M2:  // both have 5 exponent bits
      return 0x1p-14;
    case DType::kF8E4M3:
      return 0x1p-6;
    default:
      return 0;
  }
}

Moments::Moments() : min(kInfinity), max(-kInfinity) {}

Moments Moments::of_block(const BlockMoments& block, int64_t count) {
  Moments moments;
  const double n = static_cast<double>(count);
  moments.finite = count;
  moments.mean = block.sum / n;
  moments.m2 = std::max(0.0, block.sum_of_squares - block.sum * moments.mean);
  moments.min = block.min;
  moments.max = block.max;
  moments.zero = block.zero;
  moments.denormal = block.denormal;
  return moments;
}

void Moments::add(double value, double normal) {
  if (std::isnan(value)) {
    ++nan;
    return;
  }
  if (std::isinf(value)) {
    ++inf;
    return;
  }
  ++finite;
  const double distance = value - mean;
  mean += distance / static_cast<double>(finite);
  m2 += distance * (value - mean);
  min = std::min(min, value);
  max = std::max(max, value);
  zero += value == 0;
  denormal += value != 0 && std::abs(value) < normal;
}

void Moments::merge(const Moments& other) {
  nan += other.nan;
  inf += other.inf;
  zero += other.zero;
  denormal += other.denormal;
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  if (other.finite == 0) return;
  const double here = static_cast<double>(finite), there = static_cast<double>(other.finite);
  const double distance = other.mean - mean;
  mean += distance * (there / (here + there));
  m2 += other.m2 + distance * distance * (here * there / (here + there));
  finite += other.finite;
}

Statistics Moments::statistics() const {
  Statistics result;
  result.count = finite + nan + inf;
  result.nan = nan;
  result.inf = inf;
  result.zero = zero;
  result.denormal = denormal;
  result.min = result.max = result.mean = result.std = result.rms = result.absmax = kNaN;
  if (finite == 0) return result;
  const double variance = m2 / static_cast<double>(finite);
  result.min = min;
  result.max = max;
  result.mean = mean;
  result.std = std::sqrt(variance);
  result.rms = std::hypot(mean, result.std);
  result.absmax = std::max(std::abs(min), std::abs(max));
  return result;
}

Statistics tensor_statistics(const Tensor& tensor) {
  const int64_t count = tensor.numel();
  const ElementBlocks blocks(tensor);
  const double normal = smallest_normal(tensor.dtype());
  const int64_t chunk = chunk_elements(count);
  // One result a chunk, joined in order: the same digits whatever the number of threads.
  std::vector<Moments> parts(static_cast<size_t>((count + chunk - 1) / chunk));
#pragma omp parallel if (parts.size() > 1)
  {
    Scratch scratch;
#pragma omp for schedule(dynamic)
    for (size_t part = 0; part < parts.size(); ++part) {
      if (interrupted()) continue;
      const int64_t begin = static_cast<int64_t>(part) * chunk, end = std::min(begin + chunk, count);
      Moments moments;
      for (int64_t at = begin; at < end; at += kBlockElements)
        add_block(blocks, at, std::min(kBlockElements, end - at), normal, scratch, moments);
      parts[part] = moments;
    }
  }
  check_interrupt("stats");
  Moments all;
  for (const Moments& part : parts) all.merge(part);
  return all.statistics();
}

}  // namespace lockstep
