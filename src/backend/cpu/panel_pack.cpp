#include "backend/cpu/panel_pack.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/panel.h"
#include "backend/cpu/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/panel_pack.cpp"
#include "tensor/simd_targets.h"
// after the choice of targets
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after the target headers
#include "backend/cpu/vectors-inl.h"

#ifndef LOCKSTEP_CPU_QUANTISED_PANEL
#define LOCKSTEP_CPU_QUANTISED_PANEL
namespace lockstep::cpu {

struct QuantisedPanel {
  const uint32_t* words;   // first word of the first column, at k
  int64_t words_stride;    // words from column to column
  int64_t columns, count;  // count: values along K
  int bits, group_size;
  const float *scales, *biases;  // [groups][64]
  bool as_bf16;
  void* to;
};

}  // namespace lockstep::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

using Words = hn::Vec<hn::RebindToUnsigned<Float>>;

// 32 values along K of one vector of columns: kBits words a column hold exactly 32 values.
template <int kBits, bool kBf16>
HWY_INLINE void unpack_32(const uint32_t* words, int64_t words_stride, int64_t columns, Vector scale, Vector bias,
                          uint32_t* to) {
  const hn::RebindToUnsigned<Float> unsigned_tag;
  const hn::RebindToSigned<Float> signed_tag;
  constexpr size_t kLanes = hn::MaxLanes(kFloat);
  HWY_ALIGN uint32_t turned[kBits][kLanes] = {};
  for (int64_t lane = 0; lane < columns; ++lane)
    for (int w = 0; w < kBits; ++w) turned[w][lane] = words[lane * words_stride + w];
  const Words mask = hn::Set(unsigned_tag, (1u << kBits) - 1);
  const auto value = [&](int i) HWY_ATTR {
    const int bit = i * kBits, word = bit / 32, shift = bit % 32;
    Words q = hn::ShiftRightSame(hn::Load(unsigned_tag, turned[word]), shift);
    if (shift + kBits > 32) q = hn::Or(q, hn::ShiftLeftSame(hn::Load(unsigned_tag, turned[word + 1]), 32 - shift));
    return hn::MulAdd(hn::ConvertTo(kFloat, hn::BitCast(signed_tag, hn::And(q, mask))), scale, bias);
  };
  HWY_UNROLL(32)
  for (int i = 0; i < 32; i += 2) {
    const Vector even = value(i), odd = value(i + 1);
    if constexpr (kBf16) {
      // Nearest, ties away: half a unit at most, like ties to even, at half the instructions.
      const Words half = hn::Set(unsigned_tag, 0x8000u), high = hn::Set(unsigned_tag, 0xFFFF0000u);
      const Words low = hn::ShiftRight<16>(hn::Add(hn::BitCast(unsigned_tag, even), half));
      const Words pair = hn::Or(low, hn::And(hn::Add(hn::BitCast(unsigned_tag, odd), half), high));
      hn::Store(pair, unsigned_tag, to + i / 2 * kPanel);
    } else {
      hn::Store(even, kFloat, reinterpret_cast<float*>(to) + i * kPanel);
      hn::Store(odd, kFloat, reinterpret_cast<float*>(to) + (i + 1) * kPanel);
    }
  }
}

template <int kBits, bool kBf16>
void unpack(const QuantisedPanel& panel) {
  const int64_t step = lanes();
  uint32_t* to = static_cast<uint32_t*>(panel.to);
  for (int64_t k = 0; k < panel.count; k += 32) {
    const int64_t group = k / panel.group_size;
    for (int64_t column = 0; column < kPanel; column += step)
      unpack_32<kBits, kBf16>(panel.words + column * panel.words_stride + k / 32 * kBits, panel.words_stride,
                              std::clamp<int64_t>(panel.columns - column, 0, step),
                              load(panel.scales + group * kPanel + column),
                              load(panel.biases + group * kPanel + column), to + k / (kBf16 ? 2 : 1) * kPanel + column);
  }
}

void Unpack(const QuantisedPanel& panel) {
  switch (panel.bits) {
    case 2:
      return panel.as_bf16 ? unpack<2, true>(panel) : unpack<2, false>(panel);
    case 3:
      return panel.as_bf16 ? unpack<3, true>(panel) : unpack<3, false>(panel);
    case 4:
      return panel.as_bf16 ? unpack<4, true>(panel) : unpack<4, false>(panel);
    case 6:
      return panel.as_bf16 ? unpack<6, true>(panel) : unpack<6, false>(panel);
    default:
      return panel.as_bf16 ? unpack<8, true>(panel) : unpack<8, false>(panel);
  }
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(Unpack);

// Rows of a panel written at a time: a multiple of every group size. What they need on the way stands on the stack,
// because memory kept for each thread is asked for again by whichever thread first gets such work in a later pass.
constexpr int64_t kPieceRows = 1024;
constexpr int64_t kPieceGroups = kPieceRows / 32;

// Rows [column, column + columns) and entries [first, first + count) of a [N, groups] table as [count][64] floats.
void turn_groups(const Tensor& table, int64_t column, int64_t columns, int64_t first, int64_t count, float* to) {
  float row[kPieceGroups];
  const int64_t item = static_cast<int64_t>(dtype_bytes(table.dtype()));
  std::fill_n(to, count * kPanel, 0.0f);
  for (int64_t c = 0; c < columns; ++c) {
    const std::byte* from = table.strided_data() + ((column + c) * table.strides()[0] + first) * item;
    convert_run(from, table.dtype(), row, DType::kF32, count);
    for (int64_t g = 0; g < count; ++g) to[g * kPanel + c] = row[g];
  }
}

template <typename T>
void pack_dense(const Tensor& weight, int64_t column, int64_t columns, int64_t k, int64_t count, DType dtype, T* to) {
  constexpr int64_t kPair = sizeof(T) == 2 ? 2 : 1;
  const int64_t item = static_cast<int64_t>(dtype_bytes(weight.dtype()));
  const int64_t padded = (count + kPair - 1) / kPair * kPair;
  T row[kPieceRows];
  std::fill_n(row, padded, T{});
  for (int64_t c = 0; c < kPanel; ++c) {
    if (c < columns)
      convert_run(weight.strided_data() + ((column + c) * weight.strides()[0] + k) * item, weight.dtype(), row, dtype,
                  count);
    else
      std::fill_n(row, padded, T{});
    for (int64_t i = 0; i < padded; i += kPair) std::memcpy(to + i * kPanel + c * kPair, row + i, kPair * sizeof(T));
  }
}

void unpack_piece(const LinearWeight& weight, int64_t column, int64_t columns, int64_t k, int64_t count, DType dtype,
                  void* to) {
  const int64_t groups = count / weight.group_size, first = k / weight.group_size;
  alignas(64) float scales[kPieceGroups * kPanel], biases[kPieceGroups * kPanel];
  turn_groups(weight.scales, column, columns, first, groups, scales);
  turn_groups(weight.biases, column, columns, first, groups, biases);
  const int64_t stride = weight.weight.strides()[0];
  const uint32_t* words = reinterpret_cast<const uint32_t*>(weight.weight.strided_data());
  HWY_DYNAMIC_DISPATCH(Unpack)
  ({.words = words + column * stride + k / 32 * weight.bits,
    .words_stride = stride,
    .columns = columns,
    .count = count,
    .bits = weight.bits,
    .group_size = weight.group_size,
    .scales = scales,
    .biases = biases,
    .as_bf16 = dtype == DType::kBF16,
    .to = to});
}

}  // namespace

void pack_panel(const LinearWeight& weight, int64_t column, int64_t k, int64_t count, DType dtype, void* to) {
  const int64_t columns = std::min(kPanel, weight.outputs() - column);
  const int64_t item = dtype == DType::kBF16 ? 2 : 4;
  for (int64_t done = 0; done < count; done += kPieceRows) {
    const int64_t piece = std::min(kPieceRows, count - done);
    std::byte* at = static_cast<std::byte*>(to) + done * kPanel * item;
    if (weight.bits != 0)
      unpack_piece(weight, column, columns, k + done, piece, dtype, at);
    else if (dtype == DType::kBF16)
      pack_dense(weight.weight, column, columns, k + done, piece, dtype, reinterpret_cast<BFloat16*>(at));
    else
      pack_dense(weight.weight, column, columns, k + done, piece, dtype, reinterpret_cast<float*>(at));
  }
}

}  // namespace lockstep::cpu
#endif
