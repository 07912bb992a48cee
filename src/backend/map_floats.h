// Arithmetic of the sampling loop in host memory: element by element in f32, rounded where torch rounds.
#pragma once
#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <utility>

#include "tensor/convert.h"
#include "tensor/rehearsal.h"

namespace lockstep {

inline float rounded_to(DType dtype, float value) {
  if (dtype == DType::kBF16) return float_from(bfloat16_from(value));
  if (dtype == DType::kF16) return float_from(half_from(value));
  return value;
}

// Element i of `out` becomes function(i, first[i], others[i]...), all of one shape and contiguous. The f32 values stand
// in blocks on the stack: nothing is allocated, so that a step after the first takes nothing from the system.
template <typename Function, typename... Others>
void map_floats(Tensor& out, const Function& function, const Tensor& first, const Others&... others) {
  constexpr int64_t kBlock = 1024;
  const std::array inputs{first.contiguous(), others.contiguous()...};
  for ([[maybe_unused]] const Tensor& input : inputs) assert(input.shape() == out.shape());
  if (rehearsing()) return;
  std::array<std::array<float, kBlock>, 1 + sizeof...(Others)> blocks;
  assert(out.is_contiguous());
  std::byte* to = out.mutable_strided_data();
  for (int64_t begin = 0; begin < out.numel(); begin += kBlock) {
    const int64_t count = std::min(kBlock, out.numel() - begin);
    for (size_t k = 0; k < inputs.size(); ++k)
      convert_elements(inputs[k].strided_data() + begin * static_cast<int64_t>(dtype_bytes(inputs[k].dtype())),
                       inputs[k].dtype(), blocks[k].data(), DType::kF32, count);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) blocks[0][i] = [&]<size_t... k>(std::index_sequence<k...>) {
        return function(begin + static_cast<int64_t>(i), blocks[k][i]...);
      }
    (std::make_index_sequence<1 + sizeof...(Others)>());
    convert_elements(blocks[0].data(), DType::kF32, to + begin * static_cast<int64_t>(dtype_bytes(out.dtype())),
                     out.dtype(), count);
  }
}

}  // namespace lockstep
