// Products of a row-major block with a packed panel of 64 columns: the inner loop of attention and of quantised linear.
//
// Panel layouts: f32 [K][64]; bf16 [K/2][64][2], two consecutive k side by side, as vdpbf16ps and the AMX tiles read
// them (an odd K is filled with zeros).
#pragma once
#include <cstdint>

#include "backend/cpu/features.h"
#include "tensor/dtype.h"
#include "tensor/float_formats.h"

namespace lockstep::cpu {

inline constexpr int64_t kPanel = 64;

struct PanelProduct {
  const void* a;     // [rows, k] of float or BFloat16
  int64_t a_stride;  // elements from row to row
  const void* panel;
  float* c;  // [rows, columns]
  int64_t c_stride;
  int64_t rows, k, columns;  // columns <= 64; whole vectors of c are written: keep its rows 64 wide
  bool accumulate;           // add to c
};

void multiply_f32(const PanelProduct& product);          // any machine
void multiply_bf16_avx512(const PanelProduct& product);  // AVX512-BF16; k even
void multiply_bf16_amx(const PanelProduct& product);     // AMX; k even
void multiply_bf16_neon(const PanelProduct& product);    // 64-bit ARM with FEAT_BF16; k even

using MultiplyPanel = void (*)(const PanelProduct& product);
inline MultiplyPanel multiply_for(DType dtype, Level level) {
  if (dtype == DType::kF32) return multiply_f32;
  return level == Level::kAmx        ? multiply_bf16_amx
         : level == Level::kNeonBf16 ? multiply_bf16_neon
                                     : multiply_bf16_avx512;
}

// One small product on tiles against the same without them: asked once, before tiles are trusted.
bool tiles_multiply_right();

}  // namespace lockstep::cpu
