// MLX's affine quantisation: value = scale * q + bias per group along K, q in [0, 2^bits), packed into 32-bit words as
// a little-endian stream. The same bits as mlx.core.quantize.
#pragma once
#include "backend/kernels.h"

namespace lockstep {

inline constexpr int kQuantiseBits[] = {2, 3, 4, 6, 8};
inline constexpr int kQuantiseGroups[] = {32, 64, 128};

// Refuses other bits and group sizes than these.
void check_quantisation(std::string_view operation, int bits, int group_size);

struct Quantised {
  Tensor weight;          // u32 [N, K * bits / 32]
  Tensor scales, biases;  // [N, K / group_size], in the dtype of the dense weight
};

// dense: [N, K] of f32, bf16 or f16, finite, K a multiple of the group size.
Quantised quantize_affine(const Tensor& dense, int bits, int group_size);
Tensor dequantize_affine(const Quantised& quantised, int bits, int group_size);  // [N, K] in the dtype of the scales

// Replaces a dense weight by its quantised form; a weight whose K is not a multiple of the group size stays dense, as
// in MLX. Call before Backend::prepare. True when it was replaced.
bool quantize_in_place(LinearWeight& weight, int bits, int group_size);

// For backends that do not multiply in fp8.
void refuse_fp8(const LinearWeight& weight, std::string_view backend);

}  // namespace lockstep
