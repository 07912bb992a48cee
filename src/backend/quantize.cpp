#include "backend/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "tensor/convert.h"
#include "tensor/rehearsal.h"

namespace lockstep {
namespace {

// Nearest, ties to even, for |x| below 2^22; what lies beyond is clamped either way. std::rint is a library call on
// baseline x86-64, and this runs once for each of billions of weights.
float nearest(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  const volatile float shifted = x + kMagic;
  return shifted - kMagic;
}

struct Group {
  float scale, bias;
};

// The end of the range that is farther from zero becomes exactly representable: it is `bias`, and a whole number of
// steps from zero.
Group fit(const float* w, int group_size, float bins) {
  float low = std::numeric_limits<float>::infinity(), high = -low;
  for (int i = 0; i < group_size; ++i) {
    low = std::min(low, w[i]);
    high = std::max(high, w[i]);
  }
  const bool low_is_farther = std::fabs(low) > std::fabs(high);
  float scale = std::max((high - low) / bins, 1e-7f);
  if (!low_is_farther) scale = -scale;
  const float edge = low_is_farther ? low : high;
  const float steps = std::rint(edge / scale);
  if (steps == 0) return {scale, 0};
  return {edge / steps, edge};
}

void quantize_group(const float* w, const Group& group, int group_size, int bits, uint32_t* words) {
  const float bins = static_cast<float>((1 << bits) - 1);
  uint64_t stream = 0;
  int filled = 0;
  for (int i = 0; i < group_size; ++i) {
    const float q = std::clamp(nearest((w[i] - group.bias) / group.scale), 0.0f, bins);
    stream |= static_cast<uint64_t>(static_cast<uint32_t>(q)) << filled;
    filled += bits;
    if (filled >= 32) {
      *words++ = static_cast<uint32_t>(stream);
      stream >>= 32;
      filled -= 32;
    }
  }
}

}  // namespace

void check_quantisation(std::string_view operation, int bits, int group_size) {
  if (std::ranges::find(kQuantiseBits, bits) == std::end(kQuantiseBits))
    fail(Code::kUnsupported, operation, "bits of a quantised weight",
         {.expected = "2, 3, 4, 6 or 8", .got = std::to_string(bits)});
  if (std::ranges::find(kQuantiseGroups, group_size) == std::end(kQuantiseGroups))
    fail(Code::kUnsupported, operation, "group size of a quantised weight",
         {.expected = "32, 64 or 128", .got = std::to_string(group_size)});
}

Quantised quantize_affine(const Tensor& dense, int bits, int group_size) {
  check_quantisation("quantize", bits, group_size);
  if (dense.rank() != 2 || dense.dim(1) % group_size != 0)
    fail(Code::kBadInput, "quantize", "the weight's input width is not a multiple of the group size",
         {.expected = "[N, multiple of " + std::to_string(group_size) + "]", .got = to_string(dense.shape())});
  if (dense.dtype() != DType::kF32 && dense.dtype() != DType::kBF16 && dense.dtype() != DType::kF16)
    fail(Code::kUnsupported, "quantize", "weight dtype",
         {.expected = "f32, bf16 or f16", .got = std::string(dtype_name(dense.dtype()))});
  const Tensor source = dense.contiguous();
  const int64_t rows = dense.dim(0), width = dense.dim(1), groups = width / group_size;
  const int64_t words = width * bits / 32, item = static_cast<int64_t>(dtype_bytes(dense.dtype()));
  Tensor weight = Tensor::empty(DType::kU32, {rows, words});
  Tensor scales = Tensor::empty(DType::kF32, {rows, groups}), biases = Tensor::empty(DType::kF32, {rows, groups});
  uint32_t* out = weight.mutable_data<uint32_t>();
  float *scale = scales.mutable_data<float>(), *bias = biases.mutable_data<float>();
  if (rehearsing()) return {weight, scales.to(dense.dtype()), biases.to(dense.dtype())};
  std::vector<float> buffer(static_cast<size_t>(rows ? width : 0));
  std::atomic<bool> finite = true;
#pragma omp parallel for firstprivate(buffer) schedule(static)
  for (int64_t row = 0; row < rows; ++row) {
    convert_elements(source.strided_data() + row * width * item, dense.dtype(), buffer.data(), DType::kF32, width);
    for (const float x : buffer)
      if (!std::isfinite(x)) finite = false;
    if (!finite) continue;
    for (int64_t g = 0; g < groups; ++g) {
      const float* w = buffer.data() + g * group_size;
      const Group group = fit(w, group_size, static_cast<float>((1 << bits) - 1));
      quantize_group(w, group, group_size, bits, out + row * words + g * group_size * bits / 32);
      scale[row * groups + g] = group.scale;
      bias[row * groups + g] = group.bias;
    }
  }
  if (!finite) fail(Code::kBadInput, "quantize", "the weight holds NaN or infinity");
  return {weight, scales.to(dense.dtype()), biases.to(dense.dtype())};
}

Tensor dequantize_affine(const Quantised& quantised, int bits, int group_size) {
  check_quantisation("dequantize", bits, group_size);
  const int64_t rows = quantised.weight.dim(0), words = quantised.weight.dim(1), width = words * 32 / bits;
  if (quantised.scales.shape() != Shape{rows, width / group_size} ||
      quantised.biases.shape() != quantised.scales.shape())
    fail(Code::kBadInput, "dequantize", "scales and biases",
         {.expected = to_string(Shape{rows, width / group_size}), .got = to_string(quantised.scales.shape())});
  const std::vector<float> scales = to_floats(quantised.scales), biases = to_floats(quantised.biases);
  const uint32_t* in = quantised.weight.data<uint32_t>();
  Tensor out = Tensor::empty(DType::kF32, {rows, width});
  float* to = out.mutable_data<float>();
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < width; ++i) {
      const int64_t bit = i * bits, word = bit / 32, shift = bit % 32;
      uint64_t stream = in[row * words + word];
      if (shift + bits > 32) stream |= static_cast<uint64_t>(in[row * words + word + 1]) << 32;
      const float q = static_cast<float>(stream >> shift & ((uint64_t{1} << bits) - 1));
      const size_t group = static_cast<size_t>((row * width + i) / group_size);
      to[row * width + i] = scales[group] * q + biases[group];
    }
  return out.to(quantised.scales.dtype());
}

bool quantize_in_place(LinearWeight& weight, int bits, int group_size) {
  if (weight.bits != 0 || weight.inputs() % group_size != 0) return false;
  Quantised quantised = quantize_affine(weight.weight, bits, group_size);
  weight.weight = quantised.weight;
  weight.scales = quantised.scales;
  weight.biases = quantised.biases;
  weight.bits = bits;
  weight.group_size = group_size;
  weight.prepared = nullptr;
  return true;
}

void refuse_fp8(const LinearWeight& weight, std::string_view backend) {
  if (weight.fp8)
    fail(Code::kUnsupported, "linear", std::string(backend) + " does not multiply in fp8",
         {.expected = "a CUDA device of compute capability 8.9 or later", .hint = "--quantize 8, or none"});
}

}  // namespace lockstep
