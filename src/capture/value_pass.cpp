#include "capture/value_pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "capture/checksum.h"
#include "tensor/convert.h"
#include "tensor/element_blocks.h"

namespace lockstep {
namespace {

struct Scratch {
  alignas(64) std::byte raw[kBlockElements * 8];
  alignas(64) float floats[kBlockElements];
  alignas(64) double doubles[kBlockElements];
};

// How many elements are done: none when the block holds a NaN or an infinity, which are then taken one by one.
int64_t join_block(const BlockMoments& block, int64_t count, Moments& moments) {
  if (count == 0 || !std::isfinite(block.sum_of_squares)) return 0;
  moments.merge(Moments::of_block(block, count));
  return count;
}

void add_to_moments(const std::byte* raw, DType dtype, int64_t count, double normal, Scratch& scratch,
                    Moments& moments) {
  if (!fits_float(dtype)) {
    convert_elements(raw, dtype, scratch.doubles, DType::kF64, count);
    for (int64_t i = 0; i < count; ++i) moments.add(scratch.doubles[i], normal);
    return;
  }
  BlockMoments block;
  if (dtype == DType::kBF16) {
    const BFloat16* values = reinterpret_cast<const BFloat16*>(raw);
    const int64_t done = bfloat16_block_moments(values, count, static_cast<float>(normal), block);
    for (int64_t i = join_block(block, done, moments); i < count; ++i) moments.add(float_from(values[i]), normal);
    return;
  }
  const float* floats = reinterpret_cast<const float*>(raw);
  if (dtype != DType::kF32) {
    convert_elements(raw, dtype, scratch.floats, DType::kF32, count);
    floats = scratch.floats;
  }
  const int64_t done = float_block_moments(floats, count, static_cast<float>(normal), block);
  for (int64_t i = join_block(block, done, moments); i < count; ++i) moments.add(floats[i], normal);
}

}  // namespace

PassResult pass_over_values(const Tensor& tensor, const PassWants& wants) {
  const ElementBlocks blocks(tensor);
  const DType dtype = tensor.dtype();
  const size_t item = dtype_bytes(dtype);
  const double normal = smallest_normal(dtype);
  Checksum checksum;
  Moments moments;
  Scratch scratch;
  const int64_t count = tensor.numel();
  for (int64_t at = 0; at < count; at += kBlockElements) {
    const int64_t size = std::min(kBlockElements, count - at);
    const size_t bytes = static_cast<size_t>(size) * item;
    const std::byte* raw = blocks.raw(at, size, scratch.raw);
    if (wants.copy_to) {
      // The checksum is of the copy: whatever the program does to its tensor meanwhile, record and checksum agree.
      std::byte* to = wants.copy_to + static_cast<size_t>(at) * item;
      std::memcpy(to, raw, bytes);
      raw = to;
    }
    checksum.add({raw, bytes});
    if (wants.statistics) add_to_moments(raw, dtype, size, normal, scratch, moments);
    if (wants.sink) wants.sink({raw, bytes});
  }
  return {moments.statistics(), checksum.text()};
}

void complete_from_digest(Record& record, const ValueDigest& digest) {
  const bool whole = !digest.values.empty();
  const std::vector<std::byte>& bytes = whole ? digest.values : digest.first;
  const auto count = static_cast<int64_t>(bytes.size() / dtype_bytes(*record.dtype));
  const Tensor values = Tensor::wrap(bytes.data(), *record.dtype, {count}, nullptr);
  record.preview = preview_values(values);
  if (whole) {
    const PassResult result = pass_over_values(values, {});
    record.stats = result.stats;
    record.checksum = result.checksum;
  } else {
    record.stats = digest.stats;
    record.checksum = checksum_text(digest.checksum);
  }
}

std::vector<double> preview_values(const Tensor& tensor) {
  const int64_t count = std::min<int64_t>(tensor.numel(), kPreviewValues);
  std::vector<double> values(static_cast<size_t>(count));
  if (count == 0) return values;
  const ElementBlocks blocks(tensor);
  alignas(64) std::byte scratch[kPreviewValues * 8];
  const std::byte* raw = blocks.raw(0, count, scratch);
  const size_t item = dtype_bytes(tensor.dtype());
  for (size_t i = 0; i < values.size(); ++i) values[i] = element_as_double(raw + i * item, tensor.dtype());
  return values;
}

}  // namespace lockstep
